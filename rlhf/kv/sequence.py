"""A sequence: a prompt, what was generated after it, and the blocks that hold its keys and values."""

from collections.abc import Iterable
from enum import Enum

from rlhf.kv import prefix


class State(Enum):
    """Where a sequence is. Only FINISHED is final."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


class Sequence:
    """What the scheduler knows of a request.

    `tokens` is prompt and response. `computed` of them have keys and values in `blocks`, where
    `room` more fit; the first `findable` blocks can be found by their content, `copied` tokens are
    the sequence's own copy of a sibling's. `kv_version` is the policy version of the oldest keys.
    `lost` tokens were computed and given up. The scheduler alone changes any of it.
    """

    __slots__ = (
        "arrived_at",
        "blocks",
        "cached_tokens",
        "computed",
        "copied",
        "digests",
        "extras",
        "findable",
        "followers",
        "kin",
        "kv_version",
        "limit",
        "lost",
        "passed_over",
        "predicted",
        "preemptions",
        "prompt_length",
        "room",
        "root",
        "root_version",
        "span_open",
        "spans",
        "state",
        "stops",
        "tokens",
        "uid",
    )

    def __init__(
        self,
        uid: int,
        prompt: list[int],
        max_new_tokens: int,
        *,
        stops: Iterable[int] = (),
        generated: list[int] | None = None,
        predicted: int | None = None,
        group: str = "",
        extras: tuple[tuple[str, str | int], ...] = (),
    ) -> None:
        """`generated` goes on from an earlier life; `predicted` new tokens are expected.

        Sequences of one `group` name and one prompt are siblings and read the prompt once.
        """
        self.uid = uid
        self.tokens = prompt + (generated or [])
        self.prompt_length = len(prompt)
        self.limit = len(prompt) + max_new_tokens
        self.stops = frozenset(stops)
        self.predicted = max_new_tokens if predicted is None else predicted
        self.kin = (group, extras, tuple(prompt)) if group else None
        self.extras = extras
        self.state = State.WAITING
        self.blocks: list[int] = []
        self.computed = 0
        self.room = 0
        self.findable = 0
        self.root = b""
        self.root_version = -1
        self.digests: list[bytes] = []
        self.kv_version = -1
        self.copied = 0
        self.spans: list[tuple[int, int, int]] = []
        self.span_open = False
        self.followers: list[Sequence] = []
        self.preemptions = 0
        self.lost = 0
        self.cached_tokens = 0
        self.arrived_at = 0
        self.passed_over = 0

    @property
    def generated(self) -> list[int]:
        """The response so far."""
        return self.tokens[self.prompt_length :]

    @property
    def started(self) -> bool:
        """Whether it has run before: then it is ahead of those that have not."""
        return self.preemptions > 0 or len(self.tokens) > self.prompt_length

    @property
    def left(self) -> int:
        """Tokens that must be computed before the next one can be drawn."""
        return len(self.tokens) - self.computed

    def hashed(self, version: int, block_size: int) -> list[bytes]:
        """Digests of the full blocks of its tokens, as computed by a policy version."""
        if version != self.root_version:
            self.root, self.digests = prefix.root(version, self.extras), []
            self.root_version = version
        return prefix.chain(self.root, self.tokens, block_size, self.digests)

    def open_span(self, version: int) -> None:
        """The next token is drawn by `version`, looking at keys and values from `kv_version` on."""
        self.spans.append((len(self.tokens) - self.prompt_length, version, self.kv_version))
        self.span_open = True

    def versions(self) -> tuple[list[int], list[int]]:
        """Per generated token of this life: its policy version, and the oldest version attended."""
        policy: list[int] = []
        attended: list[int] = []
        if not self.spans:
            return policy, attended
        ends = [first for first, _, _ in self.spans[1:]] + [len(self.tokens) - self.prompt_length]
        for (first, version, oldest), end in zip(self.spans, ends, strict=True):
            policy += [version] * (end - first)
            attended += [oldest] * (end - first)
        return policy, attended
