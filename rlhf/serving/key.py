"""The API key of a server on this machine: made once, kept in a file that only its owner reads."""

import os
import secrets
from pathlib import Path

_BYTES = 24


def ensure(path: Path) -> Path:
    """Makes the file with a new key where there is none; the file. Its folder is closed to others.

    Raises:
        OSError: it cannot be made.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(f"{secrets.token_urlsafe(_BYTES)}\n")
        # Whole or not at all, and never over a key that clients use already.
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        draft.unlink(missing_ok=True)
    return path
