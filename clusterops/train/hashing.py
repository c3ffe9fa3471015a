"""sha256 in a thread of its own, so that it costs no time beside reading or writing the disk."""

import hashlib
import threading
from queue import Queue

# Parts may be copies of GPU memory: the bound keeps a fast disk from piling them up here.
_PARTS_AHEAD = 64


class Hasher:
    """Digests what it is fed while the caller goes on. hashlib lets go of the interpreter meanwhile.

    The fed memory must not change before `hexdigest` has returned.
    """

    def __init__(self) -> None:
        self._sha256 = hashlib.sha256()
        self._parts: Queue[memoryview | None] = Queue(_PARTS_AHEAD)
        self._thread = threading.Thread(target=self._run, name="checkpoint-hash", daemon=True)
        self._thread.start()

    def feed(self, part: memoryview) -> None:
        """Appends these bytes; waits only when the hash is far behind."""
        self._parts.put(part)

    def hexdigest(self) -> str:
        """Waits for the rest and returns the digest. Call it once, also when giving up."""
        self._parts.put(None)
        self._thread.join()
        return self._sha256.hexdigest()

    def _run(self) -> None:
        while (part := self._parts.get()) is not None:
            self._sha256.update(part)
