"""transformers' continuous batching behind our interface: any Hugging Face decoder, no GPU needed.

Sharing of blocks is off: its prefix cache is not told of new weights and would go on with keys of the
old ones. Its seed is the manager's, so a sample depends on its neighbours: not for runs that must be
repeatable. Requests that never fit kill its thread, so they are refused here.
"""

from contextlib import AbstractContextManager
from typing import Any, Protocol

from rlhf.adapters.foreign import Answer, EngineDied, ForeignEngine, Outgoing, State
from rlhf.model.huggingface import HuggingFaceModel, ModelUnavailable
from rlhf.sampling import Parameters

_WAIT_SECONDS = 0.05
_CLOSE_SECONDS = 30.0
# Below 1 % of free blocks no new prompt is begun; the library's own 15 % leaves memory unused.
_SAFETY_MARGIN = 0.01


class Batching(Protocol):
    """What is used of the library's manager."""

    def add_request(self, input_ids: list[int], request_id: str, **wanted: Any) -> Any:
        """Takes a request."""

    def get_result(self, timeout: float) -> Any:
        """The next output, or None."""

    def cancel_request(self, request_id: str) -> None:
        """Ends a request."""

    def is_running(self) -> bool:
        """Whether its thread lives."""

    def pause(self) -> AbstractContextManager[Any]:
        """Holds it between two steps."""

    def stop(self, block: bool, timeout: float, hard_stop: bool) -> None:
        """Ends its thread, and gives the model its own attention back."""


class TransformersEngine(ForeignEngine):
    """A started manager. All requests share one temperature, the manager's."""

    repeatable = False

    def __init__(
        self,
        manager: Batching,
        model: Any,
        *,
        temperature: float,
        context: int,
        capacity: int,
        version: int = 0,
    ) -> None:
        super().__init__(context, capacity, version)
        self._manager = manager
        self._model = model
        self._temperature = temperature
        self._closed = False

    def _refusal(self, parameters: Parameters) -> str:
        if parameters.top_k > 0 or parameters.top_p < 1 or parameters.min_new_tokens:
            return "this engine reports log-probabilities after top-k, top-p and minimum length"
        mine = 0.0 if parameters.greedy else parameters.temperature
        if mine != self._temperature:
            return f"this engine draws at temperature {self._temperature:g}, not at {mine:g}"
        return ""

    def _send(self, request: Outgoing) -> None:
        wanted = request.parameters
        stops = list(wanted.stop_tokens) or [-1]
        self._manager.add_request(
            request.prompt,
            request.name,
            max_new_tokens=wanted.max_new_tokens,
            eos_token_id=stops,
        )

    def _poll(self) -> list[Answer]:
        answers = []
        timeout = _WAIT_SECONDS
        while (output := self._manager.get_result(timeout=timeout)) is not None:
            timeout = 0.0
            if getattr(output, "error", None):
                raise EngineDied(f"continuous batching failed: {output.error}")
            answers.append(self._answer(output))
        if not answers and not self._manager.is_running():
            raise EngineDied(f"continuous batching has ended with {len(self._out)} requests out")
        return answers

    def _answer(self, output: Any) -> Answer:
        tokens = [int(one) for one in output.generated_tokens]
        out = self._out.get(output.request_id)
        stops = out.parameters.stop_tokens if out else ()
        reason = "stop" if tokens and tokens[-1] in stops else "length"
        return Answer(output.request_id, tokens, [float(one) for one in output.logprobs], reason)

    def _cancel(self, name: str) -> None:
        self._manager.cancel_request(name)

    def _load(self, version: int, state: State) -> None:
        del version
        if not self._manager.is_running():
            raise EngineDied("continuous batching has ended; new weights would reach nobody")
        # What was cancelled may be in a step still: it must not read half of the new weights.
        with self._manager.pause():
            self._model.load_state_dict(dict(state))

    def close(self) -> None:
        """Ends the manager's thread; what is out is lost. The model is as it was before."""
        if not self._closed:
            self._closed = True
            self._manager.stop(block=True, timeout=_CLOSE_SECONDS, hard_stop=True)


def connect(
    model: HuggingFaceModel,
    *,
    temperature: float,
    blocks: int,
    block_size: int = 16,
    seats: int = 256,
    budget: int = 2048,
    version: int = 0,
) -> TransformersEngine:
    """A manager over a model that is loaded already, started; weights are replaced in place.

    `close` it in the end. The attention that the model was loaded with stays: the trainer's forward
    pass between two steps is the same as without an engine.

    Raises:
        ModelUnavailable: transformers is not installed, or too old.
    """
    try:
        import transformers
    except ImportError as error:
        raise ModelUnavailable(
            "this engine needs the package transformers: pip install 'clusterops[huggingface]'"
        ) from error
    library: Any = transformers
    # Everything is named: a model's own generation_config would cut the distribution otherwise.
    drawing = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
    generation = library.GenerationConfig(
        eos_token_id=-1, **(drawing if temperature else {"do_sample": False})
    )
    try:
        batching = library.ContinuousBatchingConfig(
            page_size=block_size,
            num_blocks=blocks,
            max_batch_tokens=budget,
            max_requests_per_batch=seats,
            allow_block_sharing=False,
            auto_switch_to_flash=False,
            safety_margin=_SAFETY_MARGIN,
            return_logprobs=True,
        )
    except (AttributeError, TypeError) as error:
        raise ModelUnavailable(
            f"this engine needs transformers 5.24 or newer, not {library.__version__}: {error}"
        ) from error
    causal: Any = model.causal
    manager = causal.init_continuous_batching(
        generation_config=generation, continuous_batching_config=batching
    )
    manager.start()
    return TransformersEngine(
        manager,
        model,
        temperature=temperature,
        context=model.context,
        capacity=blocks * block_size,
        version=version,
    )
