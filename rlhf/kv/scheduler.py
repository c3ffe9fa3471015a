"""Which tokens are computed in a step: the scheduler of iterations, without a tensor.

A step is planned, computed by somebody else, and committed with the tokens drawn. Sequences join and
leave between any two steps:

1. Every running sequence that decodes gets room for one more token. When blocks are short, the one
   with the fewest computed tokens gives up its blocks and waits, never the oldest.
2. Prompts being read go on, in chunks, with what is left of the step's budget of tokens.
3. Seats and blocks that are left are given to those who wait; siblings of one prompt are seated
   together, and read it once.

What can never fit is refused at submission, so whoever is in gets through: the oldest always moves.
"""

import collections.abc

from rlhf.kv.blocks import BlockPool, Corrupted
from rlhf.kv.holdings import Holdings
from rlhf.kv.plan import FAILED, Chunk, Ended, Limits, Plan
from rlhf.kv.sequence import Sequence, State
from rlhf.kv.waiting import Order, WaitingLine

Drawn = collections.abc.Sequence[int]


class NeverFits(ValueError):
    """A request that would not fit with the whole pool to itself."""


class Scheduler:
    """Plans steps over a pool of blocks. One thread; `plan` and `commit` alternate."""

    def __init__(
        self, pool: BlockPool, limits: Limits | None = None, order: Order | None = None
    ) -> None:
        self.limits = limits or Limits()
        if min(self.limits.seats, self.limits.chunk, self.limits.look_ahead) < 1:
            raise ValueError(f"seats, chunk and look_ahead are at least 1, not {self.limits}")
        if self.limits.budget < self.limits.seats:
            raise ValueError(
                f"a budget of {self.limits.budget} tokens a step cannot serve "
                f"{self.limits.seats} seats: every one may decode"
            )
        self.pool = pool
        self.holdings = Holdings(pool, prefix_cache=self.limits.prefix_cache)
        self.waiting = WaitingLine(order or Order())
        self.version = 0
        self.steps = 0
        self.preemptions = 0
        self.retractions = 0
        self.computed_tokens = 0
        self._decoding: list[Sequence] = []
        self._reading: list[Sequence] = []
        self._planned: Plan | None = None

    @property
    def running(self) -> int:
        """Taken seats: who decodes, who reads, and siblings about to be forked off."""
        followers = sum([len(one.followers) for one in self._reading])
        return len(self._decoding) + len(self._reading) + followers

    def running_sequences(self) -> list[Sequence]:
        """Everybody seated, by uid."""
        followers = [each for one in self._reading for each in one.followers]
        return sorted([*self._decoding, *self._reading, *followers], key=lambda each: each.uid)

    # ---- who comes and goes

    @property
    def busy(self) -> bool:
        """Whether anybody runs or waits."""
        return bool(self._decoding or self._reading or self.waiting)

    def check(self, sequence: Sequence) -> None:
        """Whether a sequence fits with everything else gone.

        Raises:
            NeverFits: it does not.
        """
        # The last token is drawn and never attended to.
        needed = self.holdings.blocks_for(sequence.limit - 1)
        if needed > self.pool.blocks:
            raise NeverFits(
                f"{sequence.prompt_length} prompt tokens and up to "
                f"{sequence.limit - sequence.prompt_length} new ones need {needed} blocks of "
                f"{self.pool.block_size}; the pool has {self.pool.blocks}"
            )

    def submit(self, sequence: Sequence) -> None:
        """Lets a sequence wait for its turn.

        Raises:
            NeverFits: it would wait forever.
        """
        self.check(sequence)
        sequence.arrived_at = self.steps
        self.waiting.push(sequence)

    def end(self, sequence: Sequence, reason: str) -> Ended:
        """Takes a sequence out, whatever it does; its blocks are free at once.

        Raises:
            Corrupted: it has ended before, or was never submitted.
        """
        if sequence.state is State.FINISHED:
            raise Corrupted(f"sequence {sequence.uid} ends twice")
        if sequence.uid in self.waiting:
            self.waiting.remove(sequence)
        elif not self._unseat(sequence):
            leaders = [one for one in self._reading if sequence in one.followers]
            if not leaders:
                raise Corrupted(f"sequence {sequence.uid} ends and is nowhere")
            leaders[0].followers.remove(sequence)
        sequence.state = State.FINISHED
        return Ended(sequence, reason)

    def set_version(self, version: int, *, carry: bool = False) -> None:
        """New weights. What runs is read again by them, or carried on over old keys and values.

        Raises:
            ValueError: the version is not a later one.
        """
        if version <= self.version:
            raise ValueError(f"version {version} is no later than {self.version}")
        self.version = version
        if carry:
            for sequence in self.running_sequences():
                sequence.span_open = False
        else:
            self.retractions += len(self._decoding) + len(self._reading)
            self._give_up_all()

    # ---- a step

    def plan(self) -> Plan:
        """What to compute next. Empty only when nobody is here.

        Raises:
            Corrupted: the previous plan was not committed, or nobody can move.
        """
        if self._planned is not None:
            raise Corrupted("a step is planned before the previous one is committed")
        self.steps += 1
        self.holdings.fresh = []
        self._make_room()
        plan = Plan(list(self._decoding), [], [], self.holdings.fresh)
        budget = self.limits.budget - len(plan.decoding)
        for sequence in list(self._reading):
            budget -= self._read_on(sequence, budget, plan)
        if self.waiting:
            self._admit(budget, plan)
        if not plan.decoding and not plan.chunks and (self.running or self.waiting):
            raise Corrupted("nobody can move, though everybody fits alone")
        self._planned = plan
        return plan

    def commit(self, plan: Plan, drawn: Drawn) -> list[Ended]:
        """Takes the tokens drawn, in the order of `plan.drawing()`; who has ended by them.

        Raises:
            Corrupted: another plan, another number of tokens, or a pool that contradicts itself.
        """
        chunk_draws = sum([len(chunk.drawing) for chunk in plan.chunks])
        if plan is not self._planned or len(drawn) != len(plan.decoding) + chunk_draws:
            raise Corrupted("what is committed is not what was planned")
        self._planned = None
        tokens = plan.tokens
        ended = self._commit_decoding(plan.decoding, drawn)
        self._commit_chunks(plan.chunks, drawn[len(plan.decoding) :], ended)
        self.computed_tokens += tokens
        self.holdings.slack -= tokens
        for sequence, reason in ended:
            self.holdings.release(sequence, forget=reason == "failed")
            sequence.state = State.FINISHED
        if ended:
            self._decoding = [one for one in self._decoding if one.state is State.RUNNING]
        self.pool.check()
        return ended

    def abandon(self, plan: Plan) -> None:
        """A plan whose computation failed: everybody is read again.

        Raises:
            Corrupted: it is not the plan that is out.
        """
        if plan is not self._planned:
            raise Corrupted("what is abandoned is not what was planned")
        self._planned = None
        self._give_up_all()

    def _commit_decoding(self, decoding: list[Sequence], drawn: Drawn) -> list[Ended]:
        """The hot loop: one token for each sequence that decodes."""
        ended: list[Ended] = []
        size = self.pool.block_size
        version = self.version
        for sequence, token in zip(decoding, drawn[: len(decoding)], strict=True):
            computed = sequence.computed + 1
            sequence.computed = computed
            sequence.room -= 1
            if not computed % size:
                self.holdings.remember(sequence, version)
            if not sequence.span_open:
                sequence.open_span(version)
            tokens = sequence.tokens
            if token == FAILED:
                ended.append(Ended(sequence, "failed"))
                continue
            tokens.append(token)
            if token in sequence.stops:
                ended.append(Ended(sequence, "stop"))
            elif len(tokens) >= sequence.limit:
                ended.append(Ended(sequence, "length"))
        return ended

    def _commit_chunks(self, chunks: list[Chunk], drawn: Drawn, ended: list[Ended]) -> None:
        position = 0
        for chunk in chunks:
            sequence = chunk.sequence
            sequence.computed += chunk.length
            sequence.room -= chunk.length
            self.holdings.remember(sequence, self.version)
            if not chunk.drawing:
                continue
            self._reading.remove(sequence)
            self._decoding.append(sequence)
            for one in chunk.drawing:
                token = drawn[position]
                position += 1
                if token == FAILED:
                    ended.append(Ended(one, "failed"))
                    continue
                one.open_span(self.version)
                one.tokens.append(token)
                if token in one.stops:
                    ended.append(Ended(one, "stop"))
                elif len(one.tokens) >= one.limit:
                    ended.append(Ended(one, "length"))

    # ---- room

    def _make_room(self) -> None:
        """Every sequence that decodes gets room for its next token, the oldest first."""
        full = [sequence for sequence in self._decoding if not sequence.room]
        full.sort(key=lambda sequence: sequence.uid)
        for sequence in full:
            while sequence.state is State.RUNNING and not self.pool.free:
                victim = self._victim()
                self.preemptions += 1
                victim.preemptions += 1
                self._unseat(victim)
                self._line_up(victim)
            if sequence.state is State.RUNNING:
                self.holdings.grow(sequence, 1)

    def _victim(self) -> Sequence:
        """Who has the least to lose; never the oldest."""
        running = [*self._decoding, *self._reading]
        oldest = min(running, key=lambda sequence: sequence.uid)
        others = [sequence for sequence in running if sequence is not oldest]
        if not others:
            raise Corrupted(f"sequence {oldest.uid} is alone and has no room, though it fits")
        return min(others, key=lambda sequence: (sequence.computed, -sequence.uid))

    def _give_up_all(self) -> None:
        """Everybody loses their blocks and waits."""
        seated = self.running_sequences()
        self._decoding, self._reading = [], []
        for sequence in seated:
            sequence.followers = []
            self.holdings.release(sequence)
            self._line_up(sequence)

    def _line_up(self, sequence: Sequence) -> None:
        sequence.state = State.WAITING
        self.waiting.push(sequence)

    def _unseat(self, sequence: Sequence) -> bool:
        """Takes it off its seat, if it has one of its own; siblings that followed it wait alone."""
        for seated in (self._decoding, self._reading):
            if sequence in seated:
                seated.remove(sequence)
                break
        else:
            return False
        for follower in sequence.followers:
            self._line_up(follower)
        sequence.followers = []
        self.holdings.release(sequence)
        return True

    # ---- reading prompts

    def _read_on(self, sequence: Sequence, budget: int, plan: Plan) -> int:
        """Plans the next chunk of a prompt, as far as budget and blocks go; its tokens."""
        room = sequence.room + self.pool.free * self.pool.block_size
        count = min(budget, self.limits.chunk, sequence.left, room)
        if count <= 0:
            return 0
        self.holdings.grow(sequence, count)
        complete = count == sequence.left
        drawing = (sequence, *self._fork(sequence, plan)) if complete else ()
        plan.chunks.append(Chunk(sequence, sequence.computed, count, drawing))
        return count

    def _fork(self, leader: Sequence, plan: Plan) -> list[Sequence]:
        """Seats the siblings on the prompt that the leader completes in this step."""
        partial = len(leader.tokens) % self.pool.block_size
        forked = []
        for sibling in leader.followers:
            if partial and not self.pool.free:
                self._line_up(sibling)
                continue
            copy = self.holdings.fork(leader, sibling)
            if copy:
                plan.copies.append(copy)
            self._decoding.append(sibling)
            forked.append(sibling)
        leader.followers = []
        return forked

    # ---- seats

    def _admit(self, budget: int, plan: Plan) -> None:
        """Seats those who wait, as far as seats, blocks and the step's budget go."""
        passed: list[Sequence] = []
        while budget > 0 and self.running < self.limits.seats:
            if len(passed) == self.limits.look_ahead:
                break
            sequence = self.waiting.pop(self.steps)
            if sequence is None:
                break
            found = self.holdings.find(sequence, self.version)
            if not self._fits(sequence, found):
                passed.append(sequence)
            else:
                self.holdings.begin(sequence, found, self.version)
                sequence.state = State.RUNNING
                self._reading.append(sequence)
                self._seat_siblings(sequence)
                budget -= self._read_on(sequence, budget, plan)
                for one in passed:
                    one.passed_over += 1
            if any(self.waiting.must_be_next(one, self.steps) for one in passed):
                break
        for sequence in passed:
            self.waiting.push(sequence)

    def _fits(self, sequence: Sequence, found: list[int]) -> bool:
        # What is found and held by others costs nothing; what is found and free is taken.
        held = sum([1 for block in found if self.pool.holders(block)])
        return self.holdings.blocks_for(len(sequence.tokens)) - held <= self._available()

    def _available(self) -> float:
        """Free blocks that are neither promised to prompts being read nor kept as headroom."""
        running = self.running
        if not running:
            return self.pool.free
        promised = 0
        for one in self._reading:
            copies = len(one.followers) if len(one.tokens) % self.pool.block_size else 0
            promised += self.holdings.blocks_for(len(one.tokens)) - len(one.blocks) + copies
        return self.pool.free - promised - self.limits.headroom * running - self.pool.blocks // 100

    def _seat_siblings(self, leader: Sequence) -> None:
        """Seats siblings beside the leader, as many as fit."""
        copy = 1 if len(leader.tokens) % self.pool.block_size else 0
        for sibling in self.waiting.siblings(leader):
            no_room = copy + self.limits.headroom > self._available()
            if no_room or self.running >= self.limits.seats:
                break
            self.waiting.remove(sibling)
            sibling.state = State.RUNNING
            leader.followers.append(sibling)

    # ---- faults

    def audit(self) -> None:
        """Compares everything with everything; for tests and for finding a fault.

        Raises:
            Corrupted: says what contradicts what.
        """
        seated = [*self._decoding, *self._reading]
        self.holdings.audit(seated)
        if any(one.left != 1 for one in self._decoding) or any(
            one.left < 1 for one in self._reading
        ):
            raise Corrupted("who decodes has one token to compute, who reads at least one")
        if self.running > self.limits.seats:
            raise Corrupted(f"{self.running} run on {self.limits.seats} seats")
        for sequence in self.waiting.sequences():
            if sequence.state is not State.WAITING or sequence.blocks:
                raise Corrupted(f"sequence {sequence.uid} waits and holds blocks")
