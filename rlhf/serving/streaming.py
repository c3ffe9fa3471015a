"""A response as it grows, piece by piece.

Text is sent when it is certain: not while it may be a part of a letter or of a stop string. Then the
log-probabilities of the tokens behind it go with it.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from rlhf.engine_requests import Completion, NewToken
from rlhf.serving import answers
from rlhf.serving.engine_thread import EngineStopped, Ticket
from rlhf.serving.fields import ApiError
from rlhf.serving.requests import Asked
from rlhf.tasks.vocabulary import Vocabulary


class Choice:
    """One response under way."""

    def __init__(self, index: int, asked: Asked, vocabulary: Vocabulary, *, chat: bool) -> None:
        self._index = index
        self._asked = asked
        self._vocabulary = vocabulary
        self._chat = chat
        self._sent = ""
        self._listed = 0
        self._held: list[answers.Scored] = []

    def first(self) -> dict[str, Any] | None:
        """What a chat begins with: whose turn it is."""
        if not self._chat:
            return None
        return answers.piece(self._index, "", None, None, chat=True, first=True)

    def grown(self, token: NewToken) -> dict[str, Any] | None:
        """The piece of a token; None while nothing is certain."""
        if token.token not in self._asked.parameters.stop_tokens:
            self._held.append(answers.of_new(token))
        if not token.text:
            return None
        listed = self._logprobs()
        self._sent += token.text
        return answers.piece(self._index, token.text, listed, None, chat=self._chat)

    def ended(self, completion: Completion) -> dict[str, Any]:
        """The last piece: what was held back, and why it has ended."""
        rest = completion.text[len(self._sent) :]
        listed = self._logprobs() if self._held else None
        reason = completion.result.finish_reason
        return answers.piece(self._index, rest, listed, reason, chat=self._chat)

    def _logprobs(self) -> Any:
        """Those of the tokens held back, and none of them is held any more."""
        rows, self._held = self._held, []
        if not self._asked.logprobs:
            return None
        offset = self._listed
        self._listed += sum(len(self._vocabulary.decode([row.token])) for row in rows)
        return answers.logprobs(rows, self._vocabulary, chat=self._chat, offset=offset)


async def pieces(
    ticket: Ticket, asked: Asked, head: answers.Head, vocabulary: Vocabulary, seconds: float
) -> AsyncIterator[dict[str, Any]]:
    """The bodies of all events, in order, up to the usage when that was asked for.

    Raises:
        EngineStopped: the engine is gone.
        ApiError: its numbers were none.
        TimeoutError: it takes more than so many seconds in all.
    """
    deadline = asyncio.get_running_loop().time() + seconds
    extra = {"usage": None} if asked.usage_in_stream else {}
    choices = [
        Choice(index, asked, vocabulary, chat=head.chat) for index in range(len(asked.seeds))
    ]
    for choice in choices:
        if (begun := choice.first()) is not None:
            yield head.body([begun], piece=True) | extra
    open_ones, written = len(choices), 0
    while open_ones:
        async with asyncio.timeout_at(deadline):
            number, news = await ticket.events.get()
        if isinstance(news, EngineStopped):
            raise news
        if isinstance(news, NewToken):
            grown = choices[number].grown(news)
            if grown is not None:
                yield head.body([grown], piece=True) | extra
            continue
        check_end(news)
        open_ones -= 1
        written += len(news.result.tokens)
        yield head.body([choices[number].ended(news)], piece=True) | extra
    if asked.usage_in_stream:
        counts = answers.usage([len(prompt) for prompt in asked.prompts], written)
        yield head.body([], piece=True) | {"usage": counts}


def check_end(completion: Completion) -> None:
    """Whether a response is one.

    Raises:
        ApiError: the model gave no numbers.
    """
    reason = completion.result.finish_reason
    if reason not in ("stop", "length"):
        raise ApiError(500, f"the response ended as {reason!r}: the model gave no numbers")
