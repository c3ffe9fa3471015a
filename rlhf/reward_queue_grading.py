"""From a response to its reward: claims, attempts, answers, and what is done when none comes.

Each request for a reward is an attempt with a number. An answer is applied only while its attempt
is under way and only to the tokens it was computed on; anything else is counted and left alone.
"""

import heapq
from collections import deque
from collections.abc import Callable

from rlhf.identity import Envelope, Score
from rlhf.journal_records import Answered, Ignored, Missed
from rlhf.missing import Missing, Reason, Then
from rlhf.reward_queue_deadlines import Deadlines, Pending
from rlhf.reward_queue_log import Log
from rlhf.reward_queue_state import Entry, Stream
from rlhf.reward_queue_types import Claim, Expired, Limits, Outcome

ATTEMPTS_PER_LIFE = 1000
"""Attempts of a sample are numbered from `life * 1000 + 1`, so that none is used twice."""
_DETAIL_CHARACTERS = 2000


class Grading:
    """Samples that wait for a grader, and attempts under way.

    `resolve(entry, missing, then, now)` carries out what asking again does not: another draw of
    the slot, another response, or the end of the run.
    """

    def __init__(
        self,
        stream: Stream,
        limits: Limits,
        life: int,
        log: Log,
        resolve: Callable[[Entry, Missing, Then, float], None],
    ) -> None:
        self._stream = stream
        self._limits = limits
        self._first_attempt = life * ATTEMPTS_PER_LIFE
        self._log = log
        self._resolve = resolve
        self.deadlines = Deadlines(limits)
        self._ready = [
            (each.seq, each.draw)
            for each in stream.entries.values()
            if each.response_digest and each.score is None
        ]
        heapq.heapify(self._ready)
        self._hedge: deque[tuple[int, int]] = deque()

    def offer(self, entry: Entry) -> None:
        """A sample waits for a grader."""
        heapq.heappush(self._ready, (entry.seq, entry.draw))

    def claim(self, now: float, worker: str) -> Claim | None:
        """The first sample that waits; slow ones, asked a second time, come first."""
        entry, hedge = self._claimable()
        if entry is None:
            return None
        entry.attempts += 1
        attempt = self._first_attempt + entry.attempts
        under_way = (now, worker, hedge)
        entry.live = {**entry.live, attempt: under_way} if entry.live else {attempt: under_way}
        self.deadlines.attempt(Pending(now, entry.seq, entry.draw, attempt), hedge)
        return Claim(self.envelope(entry, attempt), entry.payload, hedge)

    def _claimable(self) -> tuple[Entry | None, bool]:
        entries = self._stream.entries
        while self._hedge:
            seq, draw = self._hedge.popleft()
            entry = entries.get(seq)
            if entry is not None and entry.draw == draw and entry.live:
                return entry, True
        while self._ready:
            seq, draw = heapq.heappop(self._ready)
            entry = entries.get(seq)
            if entry is not None and entry.draw == draw and entry.score is None and not entry.live:
                return entry, False
        return None, False

    def envelope(self, entry: Entry, attempt: int) -> Envelope:
        """What travels with a sample in an attempt."""
        shape = self._stream.shape
        return Envelope(
            shape.run_id,
            entry.seq,
            entry.draw,
            entry.seq // shape.group_size,
            attempt,
            shape.version_of(entry.seq // shape.batch_size),
            entry.prompt_digest,
            entry.response_digest,
        )

    def answer(self, envelope: Envelope, answer: Score | Missing, now: float) -> Outcome:
        """A grader's answer; the envelope is its echo. Applied at most once per sample."""
        entry = self._stream.entries.get(envelope.seq)
        why = self._refusal(entry, envelope, answer)
        if why is not None or entry is None:
            why = why or Ignored.UNKNOWN
            outcome = self._log.ignored(envelope.seq, envelope.draw, envelope.attempt, why, now)
            if entry is not None and why is Ignored.MISMATCH and envelope.attempt in entry.live:
                told = f"computed on tokens {envelope.digests}, not on those of this sample"
                self.close(entry, envelope.attempt, Missing(Reason.INVALID_ANSWER, told), now)
            return outcome
        if isinstance(answer, Score) and (fault := answer.fault()):
            answer = Missing(Reason.INVALID_ANSWER, fault)
        if isinstance(answer, Missing):
            self.close(entry, envelope.attempt, answer, now)
            return Outcome.MISSING
        self._apply(entry, envelope.attempt, answer, now)
        return Outcome.APPLIED

    def _refusal(
        self, entry: Entry | None, envelope: Envelope, answer: Score | Missing
    ) -> Ignored | None:
        """Why an answer is not for an attempt that is under way; None when it is."""
        if envelope.run_id != self._stream.shape.run_id:
            return Ignored.FOREIGN
        if entry is None or envelope.draw != entry.draw or not entry.response_digest:
            return self._stream.past_or_unknown(envelope.seq, envelope.draw)
        if (
            envelope.response_digest != entry.response_digest
            or envelope.prompt_digest != entry.prompt_digest
        ):
            return Ignored.MISMATCH
        if entry.score is not None:
            if isinstance(answer, Missing):
                return Ignored.LATE
            return Ignored.DUPLICATE if answer == entry.score else Ignored.CONFLICT
        if envelope.attempt not in entry.live:  # fencing: that attempt was given up
            return Ignored.LATE
        return None

    def _apply(self, entry: Entry, attempt: int, score: Score, now: float) -> None:
        since, worker, hedge = entry.live.get(attempt, (now, "", False))
        entry.attempt, entry.worker = attempt, worker
        entry.claimed_at, entry.answered_at = since, now
        self._stream.scored(entry, score)
        self.deadlines.answered(now - since)
        self._log.records.append(
            Answered(
                entry.seq,
                entry.draw,
                attempt,
                score.reward,
                score.parts,
                since,
                now,
                worker,
                hedge,
            )
        )

    def close(self, entry: Entry, attempt: int, missing: Missing, now: float) -> None:
        """An attempt ends without a reward."""
        live = dict(entry.live)
        since, worker, _ = live.pop(attempt, (now, "", False))
        entry.live = live
        self.miss(entry, attempt, missing, since, worker, now)

    def miss(
        self, entry: Entry, attempt: int, missing: Missing, since: float, worker: str, now: float
    ) -> None:
        """No reward from an attempt, or (attempt 0) no response; the policy says what follows."""
        reason = missing.reason
        before = entry.missed.get(reason, 0)
        entry.missed = {**entry.missed, reason: before + 1}
        then = Then.AWAIT if entry.live else self._limits.missing.decide(reason, before)
        detail = missing.detail[:_DETAIL_CHARACTERS]
        self._log.counted(reason)
        self._log.records.append(
            Missed(entry.seq, entry.draw, attempt, reason, then, since, now, worker, detail)
        )
        if then is Then.RETRY and entry.response_digest:
            self.offer(entry)
        elif then is not Then.AWAIT:
            self._resolve(entry, missing, then, now)

    def overdue(self, now: float) -> list[Expired]:
        """Ends the attempts whose deadline has passed; their workers are to be stopped."""
        expired = []
        for pending in self.deadlines.overdue_attempts(now):
            if self.under_way(pending):
                entry = self._stream.entries[pending.seq]
                worker = entry.live[pending.number][1]
                expired.append(Expired(self.envelope(entry, pending.number), worker))
                late = Missing(Reason.TIMED_OUT, f"no answer in {now - pending.since:.1f} s")
                self.close(entry, pending.number, late, now)
        return expired

    def hedge(self, now: float) -> bool:
        """Offers slow samples a second time; whether there were any."""
        slow = list(self.deadlines.to_hedge(now, self.under_way))
        for pending in slow:
            self._hedge.append((pending.seq, pending.draw))
        return bool(slow)

    def under_way(self, pending: Pending) -> bool:
        """Whether an attempt still has neither answer nor end."""
        entry = self._stream.entries.get(pending.seq)
        return entry is not None and entry.draw == pending.draw and pending.number in entry.live
