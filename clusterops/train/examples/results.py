"""What the example jobs leave behind: a result file that is whole or absent, and lines of progress."""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

RESULT_FILE = "result.json"


def write_result(folder: Path, result: Mapping[str, Any]) -> None:
    """Writes `result.json` at once, synced; replaces an older one."""
    target = folder / RESULT_FILE
    draft = folder / f".{RESULT_FILE}.{os.getpid()}"
    with draft.open("w") as writer:
        json.dump(result, writer, indent=1)
        writer.write("\n")
        writer.flush()
        os.fsync(writer.fileno())
    draft.replace(target)
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def say(line: str) -> None:
    """One line of progress on stdout, at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
