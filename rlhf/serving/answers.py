"""The JSON of answers, whole or piece by piece, in the two forms of OpenAI's interface. Pure."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from rlhf.engine_requests import Completion, NewToken
from rlhf.tasks.vocabulary import Vocabulary


class Head(NamedTuple):
    """What all pieces of an answer have in common. `created` is in seconds since 1970."""

    chat: bool
    identity: str
    model: str
    created: int

    def body(self, choices: list[dict[str, Any]], *, piece: bool) -> dict[str, Any]:
        """An answer around its choices."""
        kind = "text_completion"
        if self.chat:
            kind = "chat.completion.chunk" if piece else "chat.completion"
        return {
            "id": self.identity,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "choices": choices,
        }


class Scored(NamedTuple):
    """A token for the list of log-probabilities."""

    token: int
    logprob: float
    top: list[tuple[int, float]]


def usage(prompts: Sequence[int], written: int) -> dict[str, int]:
    """Tokens of all prompts, once each however many responses they have, and of all responses."""
    read = sum(prompts)
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def scored(completion: Completion, stops: Sequence[int]) -> list[Scored]:
    """The tokens of a response as a client sees them: without the token that ended it."""
    result = completion.result
    rows = zip(
        result.tokens,
        result.logprobs,
        completion.top or [[] for _ in result.tokens],
        strict=True,
    )
    return [Scored(*row) for row in rows if row[0] not in stops]


def of_new(token: NewToken) -> Scored:
    """The same of a token that was just drawn."""
    return Scored(token.token, token.logprob, token.top)


def logprobs(rows: Sequence[Scored], vocabulary: Vocabulary, *, chat: bool, offset: int = 0) -> Any:
    """The list of log-probabilities; `offset` letters came before."""
    if chat:
        return {
            "content": [
                {
                    **_entry(vocabulary, row.token, row.logprob),
                    "top_logprobs": [_entry(vocabulary, *pair) for pair in row.top],
                }
                for row in rows
            ],
            "refusal": None,
        }
    texts = [vocabulary.decode([row.token]) for row in rows]
    places = []
    for text in texts:
        places.append(offset)
        offset += len(text)
    return {
        "tokens": texts,
        "token_logprobs": [row.logprob for row in rows],
        "top_logprobs": [
            {vocabulary.decode([token]): logprob for token, logprob in row.top} for row in rows
        ],
        "text_offset": places,
    }


def _entry(vocabulary: Vocabulary, token: int, logprob: float) -> dict[str, Any]:
    text = vocabulary.decode([token])
    return {"token": text, "logprob": logprob, "bytes": list(text.encode())}


def choice(index: int, completion: Completion, listed: Any, *, chat: bool) -> dict[str, Any]:
    """A finished response. `listed` are its log-probabilities, or None."""
    reason = completion.result.finish_reason
    if chat:
        message = {"role": "assistant", "content": completion.text, "refusal": None}
        return {"index": index, "message": message, "logprobs": listed, "finish_reason": reason}
    return {
        "index": index,
        "text": completion.text,
        "logprobs": listed,
        "finish_reason": reason,
    }


def piece(
    index: int, text: str, listed: Any, reason: str | None, *, chat: bool, first: bool = False
) -> dict[str, Any]:
    """A part of a response that is being streamed."""
    if not chat:
        return {"index": index, "text": text, "logprobs": listed, "finish_reason": reason}
    delta: dict[str, Any] = {"role": "assistant", "content": text} if first else {}
    if text and not first:
        delta = {"content": text}
    return {"index": index, "delta": delta, "logprobs": listed, "finish_reason": reason}
