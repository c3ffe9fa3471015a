"""Who may talk to the server: bearer tokens, and the Host and Origin of a request.

Everybody who holds a token may do everything; the tokens are of one user's own machine. What is
kept out is other users (no token) and web pages (wrong Host or Origin), even on loopback.
"""

import hashlib
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from clusterops.apiserver.refusals import StatusError, unauthorized

MASTERS = "system:masters"
AUTHENTICATED = "system:authenticated"


class AccessError(Exception):
    """The tokens file cannot be used. The text says which, why, and what to do."""


class User(NamedTuple):
    """Who sends a request."""

    name: str
    groups: tuple[str, ...]

    def info(self) -> dict[str, Any]:
        """The `userInfo` of reviews."""
        return {"username": self.name, "groups": list(self.groups)}


class _TokenEntry(msgspec.Struct, forbid_unknown_fields=True):
    user: str
    groups: list[str] = []


class Tokens:
    """Bearer tokens and their users. Only digests of the tokens are kept.

    They are looked up by digest: how long that takes tells of the digest, which cannot be chosen,
    and nothing of a token.
    """

    def __init__(self, users: Mapping[str, User]) -> None:
        self._users = {_digest(token): user for token, user in users.items()}

    def user(self, token: str) -> User | None:
        """Whose token it is."""
        return self._users.get(_digest(token))

    def known(self, name: str) -> bool:
        """Whether a user of that name holds a token."""
        return any(user.name == name for user in self._users.values())


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def load_tokens(path: Path) -> Tokens:
    """Tokens from a file `{token: {"user": ..., "groups": [...]}}` that only its owner may read.

    Raises AccessError.
    """
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        content = path.read_bytes()
    except OSError as error:
        raise AccessError(f"cannot read the tokens file {path}: {error.strerror}") from error
    if mode & 0o077:
        raise AccessError(f"{path} can be read by other users; run: chmod 600 {path}")
    try:
        entries = msgspec.json.decode(content, type=dict[str, _TokenEntry])
    except msgspec.MsgspecError as error:
        raise AccessError(f"{path} is no tokens file: {error}") from error
    if not all(len(token) >= 16 for token in entries):
        raise AccessError(f"{path}: tokens must have at least 16 characters")
    return Tokens(
        {
            token: User(entry.user, (*entry.groups, AUTHENTICATED))
            for token, entry in entries.items()
        }
    )


class Gate:
    """Lets requests in. `port` is the one that clients know."""

    def __init__(self, tokens: Tokens, port: int) -> None:
        self.tokens = tokens
        names = ("127.0.0.1", "localhost", "[::1]")
        self._hosts = frozenset(f"{name}:{port}".encode() for name in names)
        self._origins = frozenset(b"https://" + host for host in self._hosts)

    def check_source(self, headers: Mapping[bytes, bytes]) -> None:
        """Raises 403 for a request that a web page of another origin made."""
        if headers.get(b"host", b"").lower() not in self._hosts:
            raise _foreign("the Host header does not name this server")
        origin = headers.get(b"origin")
        if origin is not None and origin.lower() not in self._origins:
            raise _foreign("the Origin header names another site")
        site = headers.get(b"sec-fetch-site")
        if site is not None and site not in (b"same-origin", b"none"):
            raise _foreign("a browser sent it from another site")

    def authenticate(self, headers: Mapping[bytes, bytes]) -> User:
        """The user of a request. Raises 401."""
        header = headers.get(b"authorization", b"")
        scheme, _, token = header.partition(b" ")
        if scheme.lower() != b"bearer":
            raise unauthorized()
        user = self.tokens.user(token.strip().decode("latin-1"))
        if user is None:
            raise unauthorized()
        return user


def _foreign(why: str) -> StatusError:
    return StatusError(403, "Forbidden", f"the request is refused: {why}")
