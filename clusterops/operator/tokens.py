"""The token with which the ranks of one attempt of one job prove who they are.

It carries the job's uid and the attempt in the clear and a MAC over both, so that the operator
needs to store nothing and a restarted one knows all tokens again. Only the key is secret.
"""

import hashlib
import hmac
import os
import secrets
from pathlib import Path
from typing import NamedTuple

KEY_BYTES = 32


class Bearer(NamedTuple):
    """Whom a token speaks for."""

    job_uid: str
    attempt: int


def issue(key: bytes, job_uid: str, attempt: int) -> str:
    """The token of one attempt; always the same for the same arguments."""
    return f"{job_uid}.{attempt}.{_mac(key, job_uid, attempt)}"


def verify(key: bytes, token: str) -> Bearer | None:
    """Whom the token speaks for, None when it was not issued with this key."""
    if not token.isascii():
        return None
    job_uid, _, rest = token.partition(".")
    number, _, mac = rest.partition(".")
    if not job_uid or not number.isdigit() or len(number) > 10:
        return None
    attempt = int(number)
    if not hmac.compare_digest(mac, _mac(key, job_uid, attempt)):
        return None
    return Bearer(job_uid, attempt)


def read_or_create_key(path: Path | None) -> bytes:
    """The operator's key. Without a path a new one each start: running jobs must then be restarted.

    Raises ValueError for a file that is too short to be a key, OSError when it cannot be read.
    """
    if path is None:
        return secrets.token_bytes(KEY_BYTES)
    try:
        key = path.read_bytes().strip()
    except FileNotFoundError:
        return _create_key(path)
    if len(key) < KEY_BYTES:
        raise ValueError(
            f"{path} is no key: it has {len(key)} bytes, at least {KEY_BYTES} are needed; "
            "remove the file and start again, running jobs then report no more until restarted"
        )
    return key


def _create_key(path: Path) -> bytes:
    key = secrets.token_hex(KEY_BYTES).encode()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(key)
        file.flush()
        os.fsync(file.fileno())
    return key


def _mac(key: bytes, job_uid: str, attempt: int) -> str:
    message = f"{job_uid}\n{attempt}".encode()
    return hmac.new(key, message, hashlib.sha256).hexdigest()
