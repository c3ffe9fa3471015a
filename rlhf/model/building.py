"""The policy that a configuration names."""

from rlhf.config.sections import Model
from rlhf.model.decoder import Decoder
from rlhf.model.huggingface import load_model
from rlhf.model.language import LanguageModel
from rlhf.model.shape import Shape


def build(wanted: Model, vocabulary: int, seed: int) -> LanguageModel:
    """A new policy, in evaluation mode, where training is to be.

    Args:
        wanted: its section of the configuration.
        vocabulary: token ids, for a decoder of our own.
        seed: of its initial weights.

    Raises:
        ModelUnavailable: a Hugging Face model that can't be loaded.
    """
    if wanted.kind == "huggingface":
        assert wanted.name is not None
        model: LanguageModel = load_model(wanted.name)
    else:
        shape = Shape(vocabulary, wanted.width, wanted.layers, wanted.heads, wanted.context)
        model = Decoder(shape, seed)
    return model.to(wanted.device).eval()
