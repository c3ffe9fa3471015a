"""Whatever a container writes, in whatever cut, the log gives it back within its bounds."""

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from clusterops.nodeagent import cri_log
from clusterops.nodeagent.cri_log import CriLog

STREAMS = st.sampled_from([b"stdout", b"stderr"])
CONTENT = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([b"\n", b"\r\n", b"\n\n", b"x" * 20_000, b"y" * 40_000 + b"\n"]),
)
WRITES = st.lists(st.tuples(STREAMS, CONTENT, st.booleans()), max_size=12)


def read_back(files: list[Path]) -> dict[bytes, bytes]:
    """Each stream as it was, from all files, oldest first."""
    streams = {b"stdout": b"", b"stderr": b""}
    for file in files:
        entries = file.read_bytes().split(b"\n")
        assert entries.pop() == b""
        for entry in entries:
            stamp, stream, mark, text = entry.split(b" ", 3)
            assert len(stamp) == 30
            assert mark in (b"F", b"P")
            assert len(text) <= cri_log.MAX_PIECE_BYTES
            streams[stream] += text + (b"\n" if mark == b"F" else b"")
    return streams


@given(WRITES)
def test_nothing_is_lost_or_changed(writes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "0.log"
        log = CriLog(str(path), 1 << 30, 2)
        written = {b"stdout": b"", b"stderr": b""}
        for stream, content, flush in writes:
            log.feed(stream, content)
            written[stream] += content
            if flush:
                log.flush()
        log.close()
        for stream, content in read_back([path]).items():
            unfinished = written[stream] and not written[stream].endswith(b"\n")
            assert content == written[stream] + (b"\n" if unfinished else b"")


@given(WRITES, st.integers(20_000, 60_000), st.integers(2, 4))
def test_rotation_keeps_the_newest_within_the_bounds(writes, max_bytes, max_files) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "0.log"
        log = CriLog(str(path), max_bytes, max_files)
        written = {b"stdout": b"", b"stderr": b""}
        for stream, content, _ in writes:
            log.feed(stream, content)
            written[stream] += content
        log.close()
        found = [path.with_name(f"0.log.{n}") for n in range(max_files, 0, -1)] + [path]
        files = [file for file in found if file.exists()]
        assert len(files) <= max_files
        assert all(file.stat().st_size <= max_bytes for file in files)
        for stream, content in read_back(files).items():
            whole = written[stream]
            if whole and not whole.endswith(b"\n"):
                whole += b"\n"
            assert whole.endswith(content)
