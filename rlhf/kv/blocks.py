"""The pool of blocks: who holds which, what is free, and what can be found again by its content.

A block is room for the keys and values of `block_size` tokens. Several sequences may hold the same
full block; each holder counts as one reference. A block without holders is free; if its content is
known by a digest it stays findable until the room is needed, the longest unused first.

Everything here is constant time per block. `check` compares the counts after every step;
`audit` goes through everything and is for tests and for finding a fault.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

NULL_BLOCK = 0
"""Never handed out: padding reads and writes go there."""


class Corrupted(RuntimeError):
    """The pool contradicts itself. Nothing that it holds can be trusted: stop the engine."""


class OutOfBlocks(RuntimeError):
    """More blocks were asked for than are free; `free` says how many are."""


class Content(NamedTuple):
    """What a findable block holds: its digest, that of the block before it, and its tokens.

    Tokens and parent are compared on a hit, so two contents of one digest cannot be confused.
    """

    digest: bytes
    parent: bytes
    tokens: tuple[int, ...]


class Copy(NamedTuple):
    """Content to be copied from one block to another, after the step that completes the source."""

    source: int
    target: int


class BlockPool:
    """`blocks` blocks of `block_size` tokens, numbered from 1; block 0 is the null block."""

    def __init__(self, blocks: int, block_size: int = 16) -> None:
        if blocks < 1 or block_size < 1:
            raise ValueError(
                f"a pool has at least one block of one token, not {blocks} x {block_size}"
            )
        self.blocks = blocks
        self.block_size = block_size
        self._references = [0] * (blocks + 1)
        self._content: list[Content | None] = [None] * (blocks + 1)
        self._by_digest: dict[bytes, int] = {}
        # Free blocks without findable content, taken from the end; then, oldest first, those with.
        self._blank = list(range(blocks, 0, -1))
        self._findable: OrderedDict[int, None] = OrderedDict()
        self._held = 0
        self.references = 0
        """Entries in all tables; what exceeds `held` is saved by sharing."""
        self.evictions = 0

    @property
    def free(self) -> int:
        """Blocks that can be taken, findable ones included."""
        return len(self._blank) + len(self._findable)

    @property
    def held(self) -> int:
        """Blocks with at least one holder."""
        return self._held

    @property
    def findable(self) -> int:
        """Free blocks whose content can still be found."""
        return len(self._findable)

    def holders(self, block: int) -> int:
        """How many tables hold the block."""
        return self._references[block]

    def take(self) -> int:
        """A free block, held once.

        Raises:
            OutOfBlocks: none is free.
        """
        if self._blank:
            block = self._blank.pop()
        elif self._findable:
            block, _ = self._findable.popitem(last=False)
            self._forget(block)
            self.evictions += 1
        else:
            raise OutOfBlocks(f"all {self.blocks} blocks are held")
        self._references[block] = 1
        self._held += 1
        self.references += 1
        return block

    def share(self, block: int) -> None:
        """One more holder of a block that is held or findable."""
        if self._references[block] == 0:
            if block not in self._findable:
                raise Corrupted(f"block {block} is shared but neither held nor findable")
            del self._findable[block]
            self._held += 1
        self._references[block] += 1
        self.references += 1

    def release(self, table: list[int], *, forget: bool = False) -> None:
        """One holder less for each block; the tail is freed first, so that it is reused first.

        With `forget`, what becomes free cannot be found any more: its content is not to be trusted.

        Raises:
            Corrupted: a block that nobody holds.
        """
        for block in reversed(table):
            left = self._references[block] - 1
            if left < 0:
                raise Corrupted(f"block {block} is released and nobody holds it")
            self._references[block] = left
            if left == 0:
                self._held -= 1
                if forget:
                    self._forget(block)
                if self._content[block] is None:
                    self._blank.append(block)
                else:
                    self._findable[block] = None
        self.references -= len(table)

    def fork(self, table: list[int], length: int) -> tuple[list[int], Copy | None]:
        """A second table over the first `length` tokens: full blocks are shared, the rest copied.

        Raises:
            OutOfBlocks: there is no block for the copy; nothing has changed.
        """
        full, partial = divmod(length, self.block_size)
        copy = Copy(table[full], self.take()) if partial else None
        for block in table[:full]:
            self.share(block)
        return table[:full] + ([copy.target] if copy else []), copy

    def remember(self, block: int, content: Content) -> None:
        """Makes a full, written block findable. The first block of a content is the one found."""
        if content.digest not in self._by_digest and self._content[block] is None:
            self._content[block] = content
            self._by_digest[content.digest] = block

    def find(
        self, digests: Iterable[bytes], start: bytes, tokens: list[int], limit: int
    ) -> list[int]:
        """The blocks that hold the first tokens, at most `limit` tokens, as far as they are known.

        Nothing is held by it; `share` what is kept before anything else is taken.
        """
        size = self.block_size
        found: list[int] = []
        parent = start
        for digest in digests:
            first = len(found) * size
            block = self._by_digest.get(digest)
            if first + size > limit or block is None:
                break
            content = self._content[block]
            if content is None or content.parent != parent:
                break
            if content.tokens != tuple(tokens[first : first + size]):
                break
            found.append(block)
            parent = digest
        return found

    def _forget(self, block: int) -> None:
        """The content is about to be overwritten: nobody may find it any more."""
        content = self._content[block]
        if content is not None:
            del self._by_digest[content.digest]
            self._content[block] = None

    def check(self) -> None:
        """Every block is free or held, never both; by the counts, in constant time.

        Raises:
            Corrupted: the counts do not add up.
        """
        if self.free + self._held != self.blocks or self.references < self._held:
            raise Corrupted(
                f"{self.free} free and {self._held} held blocks of {self.blocks}, "
                f"{self.references} table entries"
            )

    def audit(self, tables: Iterable[list[int]]) -> None:
        """Compares everything with everything, given all tables that hold blocks.

        Raises:
            Corrupted: says what contradicts what.
        """
        self.check()
        counted = [0] * (self.blocks + 1)
        for table in tables:
            for block in table:
                counted[block] += 1
        if counted != self._references:
            wrong = [
                block
                for block in range(self.blocks + 1)
                if counted[block] != self._references[block]
            ]
            raise Corrupted(f"references of blocks {wrong} are not those of the tables")
        free = [*self._blank, *self._findable]
        if sorted(free) != [b for b in range(1, self.blocks + 1) if self._references[b] == 0]:
            raise Corrupted("the free blocks are not those that nobody holds, each once")
        known = {c.digest: b for b, c in enumerate(self._content) if c is not None}
        if known != self._by_digest:
            raise Corrupted("a digest leads to a block of other content")
        if any(self._content[block] is not None for block in self._blank):
            raise Corrupted("a blank block has findable content")
        if any(self._content[block] is None for block in self._findable):
            raise Corrupted("a block counts as findable and is not")
