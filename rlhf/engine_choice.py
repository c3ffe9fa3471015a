"""Which engine a model gets: the paged one where it knows the model, the plain one for all others."""

from rlhf.engine import PagedEngine
from rlhf.engine_settings import Settings
from rlhf.generation import Engine, PlainEngine
from rlhf.kv.architecture import UnsupportedModel
from rlhf.model.language import LanguageModel


def engine_for(model: LanguageModel, version: int, settings: Settings | None = None) -> Engine:
    """An engine over a model, of a policy version. Both kinds give the same responses."""
    try:
        return PagedEngine(model, version, settings)
    except UnsupportedModel:
        return PlainEngine(model, version)
