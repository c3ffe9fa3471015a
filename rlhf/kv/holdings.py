"""Which blocks each sequence holds: growing, giving up, sharing, and finding what is known.

Keeps the counts that say how well the memory is used, so that no gauge has to walk through tables.
"""

from rlhf.kv.blocks import BlockPool, Content, Copy, Corrupted
from rlhf.kv.sequence import Sequence


class Holdings:
    """The tables of sequences over a pool. Only here do blocks change hands."""

    def __init__(self, pool: BlockPool, *, prefix_cache: bool = True) -> None:
        self.pool = pool
        self._prefix_cache = prefix_cache
        self.fresh: list[int] = []
        """Blocks handed out for the step being planned; what they hold is of no use."""
        self.slack = 0
        """Places in held blocks that nothing was written to yet."""
        self.copied = 0
        """Tokens that siblings hold a second time, in copies of a partial block."""
        self.found_tokens = 0
        """Tokens that were not computed, because a block or a sibling had them."""
        self.recomputed_tokens = 0
        """Tokens computed again, because their blocks had been given up."""

    @property
    def live_tokens(self) -> int:
        """Tokens whose keys and values are held, each counted once however many share it."""
        return self.pool.held * self.pool.block_size - self.slack - self.copied

    def blocks_for(self, tokens: int) -> int:
        """Blocks that so many tokens need."""
        return -(-tokens // self.pool.block_size)

    def grow(self, sequence: Sequence, room: int) -> None:
        """Adds blocks until there is room for so many tokens."""
        size = self.pool.block_size
        while sequence.room < room:
            block = self.pool.take()
            self.fresh.append(block)
            sequence.blocks.append(block)
            sequence.room += size
            self.slack += size

    def release(self, sequence: Sequence, *, forget: bool = False) -> None:
        """Gives all its blocks back; with `forget` their content is not to be found again."""
        self.slack -= sequence.room
        self.copied -= sequence.copied
        self.pool.release(sequence.blocks, forget=forget)
        sequence.lost = max(sequence.lost, sequence.computed)
        sequence.blocks = []
        sequence.computed = sequence.room = sequence.copied = sequence.findable = 0
        sequence.span_open = False

    def find(self, sequence: Sequence, version: int) -> list[int]:
        """Blocks that already hold its first tokens; at least the last token is computed anew."""
        if not self._prefix_cache:
            return []
        digests = sequence.hashed(version, self.pool.block_size)
        return self.pool.find(digests, sequence.root, sequence.tokens, len(sequence.tokens) - 1)

    def begin(self, sequence: Sequence, found: list[int], version: int) -> None:
        """It starts on the blocks found."""
        for block in found:
            self.pool.share(block)
        sequence.blocks = list(found)
        sequence.computed = len(found) * self.pool.block_size
        sequence.findable = len(found)
        sequence.kv_version = version
        self.found_tokens += sequence.computed
        if not sequence.started:
            sequence.cached_tokens = sequence.computed
        self.recomputed_tokens += max(0, sequence.lost - sequence.computed)
        sequence.lost = 0

    def fork(self, leader: Sequence, sibling: Sequence) -> Copy | None:
        """The sibling starts on the leader's tokens; what is to be copied once they are written."""
        length, size = len(leader.tokens), self.pool.block_size
        sibling.blocks, copy = self.pool.fork(leader.blocks, length)
        sibling.computed = sibling.cached_tokens = length
        sibling.findable, sibling.copied = divmod(length, size)
        sibling.room = -length % size
        sibling.kv_version = leader.kv_version
        sibling.lost = 0
        self.slack += sibling.room
        self.copied += sibling.copied
        self.found_tokens += length
        return copy

    def remember(self, sequence: Sequence, version: int) -> None:
        """Makes blocks that are full and written findable, if all before is of these weights."""
        if not self._prefix_cache or sequence.kv_version != version:
            return
        size = self.pool.block_size
        full = sequence.computed // size
        digests = sequence.hashed(version, size)
        for number in range(sequence.findable, full):
            parent = digests[number - 1] if number else sequence.root
            tokens = tuple(sequence.tokens[number * size : (number + 1) * size])
            content = Content(digests[number], parent, tokens)
            self.pool.remember(sequence.blocks[number], content)
        sequence.findable = full

    def audit(self, seated: list[Sequence]) -> None:
        """Compares counts, tables and references of all who hold blocks.

        Raises:
            Corrupted: says what contradicts what.
        """
        self.pool.audit(sequence.blocks for sequence in seated)
        size = self.pool.block_size
        for sequence in seated:
            if sequence.computed + sequence.room != len(sequence.blocks) * size:
                raise Corrupted(f"sequence {sequence.uid} has another room than its blocks")
            unwritten = sequence.blocks[sequence.computed // size :]
            if any(self.pool.holders(block) > 1 for block in unwritten):
                raise Corrupted(f"sequence {sequence.uid} would write into a shared block")
        if self.slack != sum(one.room for one in seated):
            raise Corrupted("the slack is not the room of those who run")
        if self.copied != sum(one.copied for one in seated):
            raise Corrupted("the copied tokens are not those of those who run")
