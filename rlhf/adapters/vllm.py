"""vLLM behind our interface: for GPUs, where its kernels are the better ones.

What makes it fit for RLHF: a cache salt per set of weights (no prefix of old weights is ever found),
processed log-probabilities (those at the sampling temperature), one request per sample with a seed of
its own (its seeds for n samples are seed + i, which collide between prompts), and the model's own end
token ignored (our stop tokens decide).
"""

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any, Protocol

from rlhf.adapters.foreign import Answer, ForeignEngine, Outgoing, State
from rlhf.sampling import Parameters

LOGPROBS_MODE = "processed_logprobs"


class VllmUnavailable(Exception):
    """vLLM is not installed; the message says what to do."""


class EngineLike(Protocol):
    """What is used of `vllm.LLMEngine`."""

    def add_request(self, request_id: str, prompt: Any, params: Any) -> Any:
        """Takes a request."""

    def step(self) -> list[Any]:
        """One iteration; outputs of requests that have news."""

    def abort_request(self, request_ids: Iterable[str]) -> None:
        """Ends requests."""


class VllmEngine(ForeignEngine):
    """An engine of vLLM that was made with `logprobs_mode="processed_logprobs"`.

    `load` puts a version's weights in place (by whatever transfer the deployment uses), and
    `sampling` is `vllm.SamplingParams`.
    """

    def __init__(
        self,
        engine: EngineLike,
        sampling: Callable[..., Any],
        load: Callable[[int, State], None],
        *,
        context: int,
        capacity: int,
        version: int = 0,
    ) -> None:
        super().__init__(context, capacity, version)
        self._engine = engine
        self._sampling = sampling
        self._loader = load

    def _refusal(self, parameters: Parameters) -> str:
        if parameters.greedy or (parameters.top_k <= 0 and parameters.top_p >= 1):
            return ""
        return (
            "vLLM's processed log-probabilities are those after top-k and top-p, not of the whole "
            "distribution: sample without them, or use our own engine"
        )

    def _send(self, request: Outgoing) -> None:
        wanted = request.parameters
        params = self._sampling(
            n=1,
            temperature=0.0 if wanted.greedy else wanted.temperature,
            max_tokens=wanted.max_new_tokens,
            min_tokens=wanted.min_new_tokens,
            seed=wanted.seed,
            stop_token_ids=list(wanted.stop_tokens),
            ignore_eos=True,
            logprobs=0,
            detokenize=False,
        )
        prompt = {"prompt_token_ids": request.prompt, "cache_salt": request.salt}
        self._engine.add_request(request.name, prompt, params)

    def _poll(self) -> list[Answer]:
        return [_answer(output) for output in self._engine.step() if output.finished]

    def _cancel(self, name: str) -> None:
        self._engine.abort_request([name])

    def _load(self, version: int, state: State) -> None:
        self._loader(version, state)


def _answer(output: Any) -> Answer:
    completion = output.outputs[0]
    tokens = [int(one) for one in completion.token_ids]
    # Each entry holds the chosen token and perhaps others: pick by id, never by position.
    logprobs = [
        float(entry[token].logprob)
        for token, entry in zip(tokens, completion.logprobs or [], strict=True)
    ]
    reason = "aborted" if completion.finish_reason == "abort" else str(completion.finish_reason)
    return Answer(
        output.request_id,
        tokens,
        logprobs,
        reason,
        int(getattr(output, "num_cached_tokens", None) or 0),
        _versions(getattr(completion, "weight_versions", None), len(tokens)),
    )


def _versions(spans: Any, length: int) -> list[int] | None:
    """Spans (version, start, end) as a version per token; none when they do not cover all."""
    if not spans:
        return None
    versions: list[int] = []
    for version, start, end in spans:
        if start != len(versions):
            return None
        versions += [int(version)] * (end - start)
    return versions if len(versions) == length else None


def connect(
    model: str, load: Callable[[int, State], None], *, version: int = 0, **arguments: Any
) -> VllmEngine:
    """An engine of the vLLM that is installed.

    Raises:
        VllmUnavailable: there is none.
    """
    try:
        library: Any = import_module("vllm")
    except ImportError as error:
        raise VllmUnavailable(
            "this needs the package vllm and a GPU: pip install vllm; or use our own engine"
        ) from error
    settings = library.EngineArgs(model=model, logprobs_mode=LOGPROBS_MODE, **arguments)
    engine = library.LLMEngine.from_engine_args(settings)
    cache = engine.vllm_config.cache_config
    return VllmEngine(
        engine,
        library.SamplingParams,
        load,
        context=engine.vllm_config.model_config.max_model_len,
        capacity=cache.num_gpu_blocks * cache.block_size,
        version=version,
    )
