"""What commands print: tables as wide as the terminal, JSON, colour where somebody can see it.

Standard output carries data, standard error messages. Foreign text is escaped. Off a terminal
nothing is cut and nothing coloured; NO_COLOR and FORCE_COLOR are obeyed.
"""

import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TextIO

from clusterops.api.text import printable

GAP = "   "
RED, GREEN, YELLOW, DIM, BOLD = "31", "32", "33", "2", "1"

_PHASE_STYLES = {
    "Running": GREEN,
    "Succeeded": GREEN,
    "Failed": RED,
    "Cancelled": DIM,
    "Checkpointing": YELLOW,
    "Requeued": YELLOW,
}


def say(message: str) -> None:
    """A message to the person: to standard error, so that piped data stays data."""
    print(printable(message, keep="\n"), file=sys.stderr, flush=True)


def safe(text: str) -> str:
    """Foreign text for one line of output."""
    return printable(text)


def write(text: str) -> None:
    """Data to standard output."""
    sys.stdout.write(text if text.endswith("\n") else f"{text}\n")


def write_json(value: Any) -> None:
    """Data as JSON; control characters are escaped by the format."""
    write(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def write_object(value: Mapping[str, Any], form: str) -> None:
    """One object as JSON or YAML, without the server's book-keeping of fields."""
    metadata = {key: part for key, part in value["metadata"].items() if key != "managedFields"}
    shown = {**value, "metadata": metadata}
    if form == "json":
        write_json(shown)
        return
    import yaml

    write(yaml.safe_dump(shown, sort_keys=False, allow_unicode=False))


def coloured(stream: TextIO, environ: Mapping[str, str] | None = None) -> bool:
    """Whether colour belongs on a stream."""
    environ = os.environ if environ is None else environ
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and environ.get("TERM") != "dumb"


def phase_style(phase: str) -> str:
    """The colour of a phase, empty for none."""
    return _PHASE_STYLES.get(phase, "")


def table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    width: int | None = None,
    style: Callable[[int, str], str] | None = None,
) -> str:
    """Rows under headings. `width` cuts lines; `style(column, cell)` gives the code of a colour."""
    cells = [[printable(cell) for cell in row] for row in rows]
    widths = [len(heading) for heading in columns]
    for row in cells:
        for position, cell in enumerate(row):
            if len(cell) > widths[position]:
                widths[position] = len(cell)
    lines = [_line(columns, widths, width, None)]
    lines += [_line(row, widths, width, style) for row in cells]
    return "\n".join(lines)


def _line(
    row: Sequence[str],
    widths: Sequence[int],
    width: int | None,
    style: Callable[[int, str], str] | None,
) -> str:
    last = len(row) - 1
    line = GAP.join(
        cell if position == last else cell.ljust(widths[position])
        for position, cell in enumerate(row)
    ).rstrip()
    if width is not None and len(line) > width:
        line = line[: width - 1] + "…"
    if style is None:
        return line
    # Colour last, so that it does not count as width: each cell at the place where it stands.
    start, parts, done = 0, [], 0
    for position, cell in enumerate(row):
        code = style(position, cell)
        end = min(start + len(cell), len(line))
        if code and start < end:
            parts += [line[done:start], f"\x1b[{code}m{line[start:end]}\x1b[0m"]
            done = end
        start += widths[position] + len(GAP)
    return "".join(parts) + line[done:]


def terminal_width(stream: TextIO) -> int | None:
    """Columns of the terminal, None when the stream is none."""
    return shutil.get_terminal_size().columns if stream.isatty() else None


def age(timestamp: str | None, now: datetime | None = None) -> str:
    """Time since a timestamp of the API in the words of kubectl: `45s`, `3m20s`, `5h`, `12d`."""
    moment = parse_time(timestamp)
    if moment is None:
        return "<none>"
    return duration(((now or datetime.now(UTC)) - moment).total_seconds())


def duration(seconds: float) -> str:
    """Seconds in the words of kubectl."""
    whole = max(0, int(seconds))
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if whole < 120:
        return f"{whole}s"
    if minutes < 10:
        return f"{minutes}m{whole % 60}s" if whole % 60 else f"{minutes}m"
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    return f"{hours}h" if hours < 48 else f"{days}d"


def parse_time(timestamp: str | None) -> datetime | None:
    """A timestamp of the API, None when there is none or it is broken."""
    if not timestamp:
        return None
    try:
        moment = datetime.fromisoformat(timestamp)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def clock(timestamp: str | None) -> str:
    """A timestamp of the API to the second, `2026-11-30 19:02:00 UTC`; as it is when it is broken."""
    moment = parse_time(timestamp)
    if moment is None:
        return timestamp or ""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def counted(count: int, thing: str) -> str:
    """`1 attempt`, `2 attempts`."""
    return f"{number(count)} {thing}{'' if count == 1 else 's'}"


def number(value: int | float) -> str:
    """A number with its thousands apart."""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"
