"""What a client asks for, as requests to the engine. Pure: JSON in, values or an error in words out."""

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple

from rlhf.engine_requests import MOST_STOP_STRINGS, MOST_TOP_LOGPROBS, FullParameters
from rlhf.serving.chat import Message, Template
from rlhf.serving.fields import ApiError, Fields, bad
from rlhf.tasks.vocabulary import Vocabulary

_SHARED = {
    "model": ...,
    "n": ...,
    "seed": ...,
    "stop": ...,
    "stream": ...,
    "stream_options": ...,
    "temperature": ...,
    "top_p": ...,
    "top_k": ...,
    "max_tokens": ...,
    "logprobs": ...,
    "logit_bias": ...,
    "user": ...,
    "metadata": ...,
    "store": ...,
    "presence_penalty": 0,
    "frequency_penalty": 0,
}
_COMPLETION = _SHARED | {"prompt": ..., "echo": False, "suffix": "", "best_of": ...}
_CHAT = _SHARED | {
    "messages": ...,
    "max_completion_tokens": ...,
    "top_logprobs": ...,
    "tools": [],
    "tool_choice": "none",
    "functions": [],
    "response_format": {"type": "text"},
    "modalities": ["text"],
    "parallel_tool_calls": ...,
    "service_tier": ...,
}
_DEFAULT_COMPLETION_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Served:
    """What there is to ask."""

    name: str
    vocabulary: Vocabulary
    template: Template
    context: int
    most_samples: int = 128
    """Prompts times `n` of one request."""


class Asked(NamedTuple):
    """A request, understood. Choice `i` is sample `i % n` of prompt `i // n`."""

    prompts: list[list[int]]
    n: int
    parameters: FullParameters
    seeds: list[int]
    stream: bool
    usage_in_stream: bool
    logprobs: bool

    def choice(self, index: int) -> tuple[list[int], FullParameters]:
        """The prompt and the parameters of a choice."""
        names = FullParameters.__dataclass_fields__
        values = {name: getattr(self.parameters, name) for name in names}
        return self.prompts[index // self.n], FullParameters(**values | {"seed": self.seeds[index]})


def completion(body: Any, served: Served, fresh_seed: Callable[[], int]) -> Asked:
    """A request to /v1/completions.

    Raises:
        ApiError: says which field is wrong.
    """
    fields = Fields(body, _COMPLETION)
    _check_model(fields, served)
    prompts = _prompts(fields.get("prompt"), served.vocabulary)
    n = fields.whole("n", 1, served.most_samples, 1) or 1
    if fields.whole("best_of", 1, served.most_samples, n) != n:
        raise bad("best_of other than n is not supported", "best_of")
    logprobs = fields.whole("logprobs", 0, MOST_TOP_LOGPROBS, None)
    new = _new_tokens(fields, ("max_tokens",), prompts, served, _DEFAULT_COMPLETION_TOKENS)
    return _asked(fields, served, prompts, n, new, logprobs, fresh_seed)


def chat(body: Any, served: Served, fresh_seed: Callable[[], int]) -> Asked:
    """A request to /v1/chat/completions.

    Raises:
        ApiError: says which field is wrong.
    """
    fields = Fields(body, _CHAT)
    _check_model(fields, served)
    try:
        prompts = [served.template.ids(_messages(fields.get("messages")), served.vocabulary)]
    except ValueError as error:
        raise bad(f"messages: {error}", "messages") from error
    _check_ids(prompts, served.vocabulary, "messages")
    n = fields.whole("n", 1, served.most_samples, 1) or 1
    top = fields.whole("top_logprobs", 0, MOST_TOP_LOGPROBS, None)
    wanted = fields.flag("logprobs")
    if top is not None and not wanted:
        raise bad("top_logprobs needs logprobs: true", "top_logprobs")
    names = ("max_completion_tokens", "max_tokens")
    new = _new_tokens(fields, names, prompts, served, None)
    return _asked(fields, served, prompts, n, new, (top or 0) if wanted else None, fresh_seed)


def _asked(
    fields: Fields,
    served: Served,
    prompts: list[list[int]],
    n: int,
    new: int,
    logprobs: int | None,
    fresh_seed: Callable[[], int],
) -> Asked:
    if len(prompts) * n > served.most_samples:
        raise bad(f"at most {served.most_samples} responses a request", "n")
    seed = fields.whole("seed", -(2**63), 2**63 - 1, None)
    options = fields.get("stream_options")
    if options is not None and not isinstance(options, dict):
        raise bad("stream_options is no object", "stream_options")
    parameters = FullParameters(
        max_new_tokens=new,
        seed=0,
        temperature=fields.number("temperature", 0, 2, 1.0),
        top_k=fields.whole("top_k", 0, 1 << 30, 0) or 0,
        top_p=_top_p(fields),
        stop_tokens=served.vocabulary.stop_tokens,
        stop_strings=_stops(fields.get("stop")),
        logit_bias=_bias(fields.get("logit_bias"), served.vocabulary.size),
        top_logprobs=logprobs or 0,
    )
    return Asked(
        prompts,
        n,
        parameters,
        _seeds(fresh_seed() if seed is None else seed, len(prompts) * n),
        fields.flag("stream"),
        bool((options or {}).get("include_usage")),
        logprobs is not None,
    )


def _top_p(fields: Fields) -> float:
    value = fields.number("top_p", 0, 1, 1.0)
    if value == 0:
        raise bad("top_p is above 0: no token would be left", "top_p")
    return value


def _seeds(seed: int, count: int) -> list[int]:
    """63 bits per choice: no two choices of any two seeds share a stream."""
    hashed = [
        blake2b(f"{seed},{index}".encode(), digest_size=8, person=b"serving/seed").digest()
        for index in range(count)
    ]
    return [int.from_bytes(one, "big") >> 1 for one in hashed]


def _check_model(fields: Fields, served: Served) -> None:
    model = fields.text("model")
    if model is None:
        raise bad("model is missing", "model")
    if model != served.name:
        raise ApiError(
            404,
            f"there is no model {model!r} here, only {served.name!r}",
            param="model",
            code="model_not_found",
        )


def _new_tokens(
    fields: Fields,
    names: tuple[str, ...],
    prompts: list[list[int]],
    served: Served,
    default: int | None,
) -> int:
    """How many tokens may be written: asked for, or what the context leaves."""
    longest = max(len(prompt) for prompt in prompts)
    left = served.context - longest
    if left < 1:
        message = f"the prompt has {longest} tokens; the model's context is {served.context}"
        raise ApiError(400, message, code="context_length_exceeded")
    for name in names:
        wanted = fields.whole(name, 1, 1 << 30, None)
        if wanted is not None:
            if wanted > left:
                raise ApiError(
                    400,
                    f"{longest} tokens of prompt and {wanted} of response exceed the model's context "
                    f"of {served.context}",
                    param=name,
                    code="context_length_exceeded",
                )
            return wanted
    return min(left, default or left)


def _prompts(given: Any, vocabulary: Vocabulary) -> list[list[int]]:
    """A string, strings, ids, or lists of ids."""
    several = given if isinstance(given, list) else [given]
    if several and all(_is_id(one) for one in several):
        several = [several]
    prompts = []
    for one in several:
        if isinstance(one, str):
            try:
                prompts.append(vocabulary.encode(one))
            except ValueError as error:
                raise bad(f"prompt: {error}", "prompt") from error
        elif isinstance(one, list) and all(_is_id(each) for each in one):
            prompts.append(one)
        else:
            raise bad("prompt is a string, a list of strings, or token ids", "prompt")
    _check_ids(prompts, vocabulary, "prompt")
    return prompts


def _check_ids(prompts: list[list[int]], vocabulary: Vocabulary, name: str) -> None:
    if not prompts or not all(prompts):
        raise bad(f"{name} is empty: there is nothing to go on from", name)
    if any(not 0 <= each < vocabulary.size for prompt in prompts for each in prompt):
        raise bad(f"{name} has token ids that are not 0 to {vocabulary.size - 1}", name)


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _messages(given: Any) -> list[Message]:
    if not isinstance(given, list) or not given:
        raise bad("messages is a list of at least one message", "messages")
    found = []
    for number, one in enumerate(given):
        name = f"messages[{number}]"
        if not isinstance(one, dict) or not isinstance(one.get("role"), str):
            raise bad(f"{name} is no object with a role", name)
        if one["role"] not in ("system", "developer", "user", "assistant"):
            raise bad(f"{name}.role is not supported: {one['role'][:40]!r}", name)
        found.append(Message(one["role"], _content(one.get("content"), name)))
    return found


def _content(given: Any, name: str) -> str:
    """Text, or parts that are all text."""
    if isinstance(given, str):
        return given
    if isinstance(given, list) and given:
        texts = [
            one.get("text") for one in given if isinstance(one, dict) and one.get("type") == "text"
        ]
        if len(texts) == len(given) and all(isinstance(text, str) for text in texts):
            return "".join(str(text) for text in texts)
    raise bad(f"{name}.content is no text, and nothing else is supported", name)


def _stops(given: Any) -> tuple[str, ...]:
    several = [given] if isinstance(given, str) else given or []
    if not isinstance(several, list) or not all(isinstance(one, str) and one for one in several):
        raise bad("stop is a string or a list of strings, none of them empty", "stop")
    if len(several) > MOST_STOP_STRINGS:
        raise bad(f"at most {MOST_STOP_STRINGS} stop strings", "stop")
    return tuple(several)


def _bias(given: Any, size: int) -> tuple[tuple[int, float], ...]:
    if given is None:
        return ()
    if not isinstance(given, dict):
        raise bad("logit_bias is no object", "logit_bias")
    pairs = []
    for token, bias in given.items():
        known = token.isascii() and token.isdigit() and int(token) < size
        fits = isinstance(bias, int | float) and not isinstance(bias, bool) and -100 <= bias <= 100
        if not known or not fits:
            raise bad("logit_bias maps token ids to numbers of -100 to 100", "logit_bias")
        pairs.append((int(token), float(bias)))
    return tuple(pairs)
