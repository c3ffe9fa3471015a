"""The end of a log, freed of the format's marks."""

from clusterops.nodeagent.cri_log import CriLog
from clusterops.nodeagent.log_tail import tail


def test_pieces_are_joined_and_marks_removed(tmp_path) -> None:
    path = tmp_path / "0.log"
    log = CriLog(str(path), 1 << 20, 2)
    log.feed(b"stdout", b"a\rb\n")
    log.feed(b"stderr", b"half")
    log.flush()
    log.feed(b"stderr", b" whole\n")
    log.close()
    assert tail(path, max_bytes=100, max_lines=10) == b"a\rb\nhalf whole\n"
    assert tail(path, max_bytes=100, max_lines=1) == b" whole\n"
    assert tail(path, max_bytes=6, max_lines=10) == b"whole\n"


def test_a_long_log_is_not_read_whole_and_a_missing_one_is_empty(tmp_path) -> None:
    path = tmp_path / "0.log"
    log = CriLog(str(path), 1 << 30, 2)
    log.feed(b"stdout", b"".join(b"line %d\n" % number for number in range(10_000)))
    log.close()
    assert tail(path, max_bytes=2048, max_lines=2) == b"line 9998\nline 9999\n"
    assert tail(tmp_path / "none.log", max_bytes=10, max_lines=1) == b""
