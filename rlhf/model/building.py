"""The policy that a configuration names."""

from rlhf.config.sections import Model
from rlhf.model.decoder import Decoder
from rlhf.model.huggingface import ModelUnavailable, load_model
from rlhf.model.language import LanguageModel
from rlhf.model.shape import Shape
from rlhf.weights import load_start


def build(wanted: Model, vocabulary: int, seed: int) -> LanguageModel:
    """A new policy, in evaluation mode, where training is to be.

    Args:
        wanted: its section of the configuration.
        vocabulary: token ids, for a decoder of our own.
        seed: of its initial weights.

    Raises:
        ModelUnavailable: a Hugging Face model that can't be loaded, weights of another model, or a
            device that isn't there.
        SnapshotUnreadable: the weights to start from can't be read.
    """
    if wanted.kind == "huggingface":
        assert wanted.name is not None
        model: LanguageModel = load_model(wanted.name)
    else:
        shape = Shape(vocabulary, wanted.width, wanted.layers, wanted.heads, wanted.context)
        model = Decoder(shape, seed)
    if wanted.start is not None:
        try:
            model.load_state_dict(load_start(wanted.start))
        except RuntimeError as error:
            raise ModelUnavailable(f"{wanted.start} is of another model: {error}") from error
    try:
        return model.to(wanted.device).eval()
    # PyTorch says one or the other, by which of its devices this machine lacks.
    except (RuntimeError, AssertionError) as error:
        raise ModelUnavailable(
            f"model.device={wanted.device} can't be used here: {error}"
        ) from error
