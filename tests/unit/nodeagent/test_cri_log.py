"""The log file's format, cut and rotation, by byte."""

import os

from clusterops.nodeagent.cri_log import MAX_PIECE_BYTES, CriLog


class Clock:
    def __init__(self) -> None:
        self.nanoseconds = 1_767_225_600_123_456_789

    def __call__(self) -> int:
        return self.nanoseconds


STAMP = b"2026-01-01T00:00:00.123456789Z"


def log(path, max_bytes: int = 1 << 20, max_files: int = 3) -> CriLog:
    return CriLog(str(path), max_bytes, max_files, Clock())


def test_lines_are_the_same_however_the_output_is_cut(tmp_path) -> None:
    content = b"one\n\ntwo\nthree"
    texts = []
    for size in (1, 2, 3, 100):
        path = tmp_path / f"{size}.log"
        writer = log(path)
        for start in range(0, len(content), size):
            writer.feed(b"stdout", content[start : start + size])
        writer.close()
        texts.append(path.read_bytes())
    lines = (b"one", b"", b"two", b"three")
    expected = b"".join(STAMP + b" stdout F " + line + b"\n" for line in lines)
    assert texts == [expected] * 4


def test_streams_do_not_mix_within_lines(tmp_path) -> None:
    writer = log(tmp_path / "0.log")
    writer.feed(b"stdout", b"a")
    writer.feed(b"stderr", b"x\n")
    writer.feed(b"stdout", b"b\n")
    writer.close()
    assert (tmp_path / "0.log").read_bytes().splitlines() == [
        STAMP + b" stderr F x",
        STAMP + b" stdout F ab",
    ]


def test_a_flushed_piece_is_continued_and_an_empty_rest_closes_the_line(tmp_path) -> None:
    writer = log(tmp_path / "0.log")
    writer.feed(b"stdout", b"10%")
    assert writer.has_pending()
    writer.flush()
    assert not writer.has_pending()
    writer.feed(b"stdout", b"...")
    writer.flush()
    writer.feed(b"stdout", b"\nnext\n")
    writer.close()
    assert [line.split(b" ", 2)[2] for line in (tmp_path / "0.log").read_bytes().splitlines()] == [
        b"P 10%",
        b"P ...",
        b"F ",
        b"F next",
    ]


def test_a_line_of_exactly_one_piece_is_one_entry(tmp_path) -> None:
    writer = log(tmp_path / "0.log")
    writer.feed(b"stdout", b"x" * MAX_PIECE_BYTES + b"\n")
    writer.close()
    [entry] = (tmp_path / "0.log").read_bytes().splitlines()
    assert entry == STAMP + b" stdout F " + b"x" * MAX_PIECE_BYTES


def test_one_file_only_starts_over(tmp_path) -> None:
    writer = log(tmp_path / "0.log", max_bytes=200, max_files=1)
    for number in range(20):
        writer.feed(b"stdout", b"line %d\n" % number)
    writer.close()
    assert [path.name for path in tmp_path.iterdir()] == ["0.log"]
    content = (tmp_path / "0.log").read_bytes()
    assert len(content) <= 200
    assert content.endswith(b"line 19\n")


def test_an_entry_larger_than_a_file_is_still_written_whole(tmp_path) -> None:
    writer = log(tmp_path / "0.log", max_bytes=100)
    writer.feed(b"stdout", b"y" * 500 + b"\n")
    writer.feed(b"stdout", b"z\n")
    writer.close()
    assert (tmp_path / "0.log.1").read_bytes().endswith(b"y" * 500 + b"\n")
    assert (tmp_path / "0.log").read_bytes() == STAMP + b" stdout F z\n"


def test_what_a_full_disk_cut_off_is_taken_back_and_counted(tmp_path, monkeypatch) -> None:
    writer = log(tmp_path / "0.log")
    writer.feed(b"stdout", b"kept\n")
    real_write = os.write

    def fill_up(descriptor: int, content: bytes) -> int:
        if len(content) > 5:
            return real_write(descriptor, bytes(content[:5]))
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", fill_up)
        writer.feed(b"stdout", b"lost\nlost too\n")
    assert (tmp_path / "0.log").read_bytes() == STAMP + b" stdout F kept\n"
    assert writer.dropped == 2
    writer.feed(b"stdout", b"again\n")
    writer.close()
    assert [line.split(b" ", 3)[3] for line in (tmp_path / "0.log").read_bytes().splitlines()] == [
        b"kept",
        b"[clusterops: 2 log lines were dropped: No space left on device]",
        b"again",
    ]
