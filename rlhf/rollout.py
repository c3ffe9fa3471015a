"""Between queue and engine: whole batches are generated, and each slot gets the response that is its own.

A batch is always generated in one piece, also when a restart left only some of its slots to fill: the
arithmetic of a batch depends on its size, and so the same batch gives the same bits.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from rlhf.config.sections import RunConfig
from rlhf.identity import Shape, reserve_key, sampling_seed
from rlhf.messages import Generate, Generated, Generation, Request
from rlhf.missing import Missing, Reason
from rlhf.queue_shell import QueueShell
from rlhf.responses import Response
from rlhf.reward_queue_types import EndOfStream, Slot
from rlhf.tasks.task import Prompt, Task


class RolloutFailed(Exception):
    """The engine could not generate; the queue decides what follows."""


class RolloutEngine(Protocol):
    """Generates in another process; one request at a time."""

    async def generate(self, wanted: Generate) -> Generated:
        """All responses of a request.

        Raises:
            RolloutFailed: it could not; the next request finds it working again.
        """


class Piece(NamedTuple):
    """What is generated together: a batch, or a group that is drawn again."""

    first_seq: int
    size: int
    draw: int
    policy_version: int


def piece_of(slot: Slot, shape: Shape) -> Piece:
    """The piece that a slot belongs to."""
    if slot.draw == 0:
        first = slot.batch * shape.batch_size
        return Piece(first, shape.batch_size, 0, slot.policy_version)
    return Piece(slot.first_seq, shape.group_size, slot.draw, slot.policy_version)


def prompt_of(seq: int, draw: int, shape: Shape, task: Task) -> Prompt:
    """The prompt of a slot: the stream's own, or one of the reserve when it is drawn again."""
    group = shape.group_of(seq)
    if draw == 0:
        return task.prompt(group)
    return task.reserve(reserve_key(shape.seed, group * shape.group_size, draw))


def requests_of(piece: Piece, shape: Shape, task: Task) -> Generate:
    """What the engine is asked for."""
    return Generate(
        piece.policy_version,
        [
            Request(
                seq,
                list(prompt_of(seq, piece.draw, shape, task).ids),
                sampling_seed(shape.seed, seq, piece.draw),
                shape.group_of(seq),
            )
            for seq in range(piece.first_seq, piece.first_seq + piece.size)
        ],
    )


class Rollout:
    """Fills the slots of a queue."""

    def __init__(
        self, queue: QueueShell, engine: RolloutEngine, task: Task, shape: Shape, config: RunConfig
    ) -> None:
        self._queue = queue
        self._engine = engine
        self._task = task
        self._shape = shape
        self._seconds = config.queue.rollout_seconds
        self._pieces: OrderedDict[Piece, asyncio.Task[dict[int, Generation]]] = OrderedDict()
        self._turn = asyncio.Lock()
        self.generating_seconds = 0.0
        """Time spent on generating, since it was last set to 0."""
        self.generated_tokens = 0
        self.work: dict[str, float] = {}
        """What the engine has counted meanwhile."""

    async def run(self) -> None:
        """Fills slots until the end of the stream.

        Raises:
            RunFailed: the run cannot go on.
        """
        async with asyncio.TaskGroup() as tasks:
            while not isinstance(slot := await self._queue.dispatch("rollout"), EndOfStream):
                tasks.create_task(self._fill(slot), name=f"rollout of {slot.sample_id}")

    async def _fill(self, slot: Slot) -> None:
        piece = piece_of(slot, self._shape)
        try:
            generated = await asyncio.shield(self._piece(piece))
        except RolloutFailed as error:
            self._pieces.pop(piece, None)  # asked again, it is generated again
            self._queue.abandon(slot, Missing(Reason.NO_RESPONSE, str(error)))
            return
        prompt = prompt_of(slot.seq, slot.draw, self._shape, self._task)
        self._queue.submit(slot, self._response(prompt, generated[slot.seq]))

    def _piece(self, piece: Piece) -> "asyncio.Task[dict[int, Generation]]":
        """The piece's generation, begun by the first of its slots."""
        if piece not in self._pieces:
            made = asyncio.create_task(self._generate(piece), name=f"{piece}")
            # Its failure is told to each slot that waits; when none does any more, to nobody.
            made.add_done_callback(lambda task: task.cancelled() or task.exception())
            self._pieces[piece] = made
            self._forget_old(piece)
        return self._pieces[piece]

    async def _generate(self, piece: Piece) -> dict[int, Generation]:
        async with self._turn:  # in the order of dispatch, one after another
            wanted = requests_of(piece, self._shape, self._task)
            try:
                async with asyncio.timeout(self._seconds):
                    made = await self._engine.generate(wanted)
            except TimeoutError:
                raise RolloutFailed(f"no responses in {self._seconds:g} s") from None
        found = {one.seq: one for one in made.responses}
        missing = [one.seq for one in wanted.requests if one.seq not in found]
        if missing:
            raise RolloutFailed(f"the engine gave no response for slot {missing[0]}")
        self.generating_seconds += made.seconds
        self.generated_tokens += sum(len(one.tokens) for one in made.responses)
        for name, count in made.work.items():
            self.work[name] = self.work.get(name, 0.0) + count
        return found

    def forget_work(self) -> None:
        """Counts from 0 again."""
        self.generating_seconds, self.generated_tokens, self.work = 0.0, 0, {}

    def _forget_old(self, newest: Piece) -> None:
        """Lets go of pieces that no slot can belong to any more."""
        oldest_needed = newest.first_seq - 2 * self._shape.capacity
        for piece in [one for one in self._pieces if one.first_seq < oldest_needed]:
            if self._pieces[piece].done():
                del self._pieces[piece]

    def _response(self, prompt: Prompt, made: Generation) -> Response:
        vocabulary = self._task.vocabulary
        return Response(
            prompt_ids=list(prompt.ids),
            response_ids=made.tokens,
            prompt=prompt.text,
            response=vocabulary.decode(without_stop(made.tokens, vocabulary.stop_tokens)),
            logprobs=made.logprobs,
            finish_reason=made.finish_reason,
            context=prompt.context,
            found_tokens=made.found_tokens,
            versions=made.versions,
        )


def without_stop(tokens: Sequence[int], stop_tokens: Sequence[int]) -> list[int]:
    """A response's tokens up to its first stop token."""
    ends = (place for place, token in enumerate(tokens) if token in stop_tokens)
    return list(tokens[: next(ends, len(tokens))])
