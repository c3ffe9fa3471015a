"""Uids of objects: random UUIDs, whose randomness is fetched for many at once."""

from collections.abc import Callable

FETCHED = 4096  # bytes; asking the kernel for each uid costs more than all else about it


class Uids:
    """Makes version 4 UUIDs. `random_bytes(n)` is the source, `os.urandom` outside tests."""

    def __init__(self, random_bytes: Callable[[int], bytes]) -> None:
        self._random_bytes = random_bytes
        self._unused = ""

    def new(self) -> str:
        """A uid that was never given out before."""
        if len(self._unused) < 32:
            self._unused = self._random_bytes(FETCHED).hex()
        digits, self._unused = self._unused[:32], self._unused[32:]
        variant = "89ab"[int(digits[16], 16) & 3]
        return (
            f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"
        )
