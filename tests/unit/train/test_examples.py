"""The example jobs end with the same result however they are interrupted."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.train_ranks import ended, start_ranks

from clusterops import train
from clusterops.train.examples import counter
from clusterops.train.examples.counter import Attempts

COUNTER = ["-m", "clusterops.train.examples.counter", "--steps", "60", "--step-seconds", "0.005"]


def result(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return content


def run_counter(folder: Path, kill_after: float | None = None) -> int:
    process = subprocess.Popen(
        [sys.executable, *COUNTER, "--out", str(folder)], stdout=subprocess.DEVNULL
    )
    try:
        return process.wait(60 if kill_after is None else kill_after)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait(60)


def test_counter_killed_at_many_instants_ends_as_if_undisturbed(tmp_path: Path) -> None:
    counter.main(["--steps", "60", "--step-seconds", "0", "--out", str(tmp_path / "calm")])
    seed = random.randrange(1 << 30)
    chance = random.Random(seed)
    folder = tmp_path / "killed"
    kills = 0
    while kills < 12 and not (folder / "result.json").exists():
        run_counter(folder, kill_after=chance.uniform(0.05, 0.6))
        kills += 1
    assert run_counter(folder) == 0, f"seed {seed}"
    assert result(folder) == result(tmp_path / "calm"), f"seed {seed}"
    began = [one for one in Attempts(folder).read() if one["event"] == "began"]
    assert all(one["overlaps"] == [] for one in began)


def test_counter_notices_two_attempts_at_once(tmp_path: Path) -> None:
    attempts = Attempts(tmp_path)
    attempts.began(0)
    attempts.began(0)
    assert attempts.read()[-1]["overlaps"] == [os.getpid()]
    attempts.ended(0)
    attempts.began(0)
    assert attempts.read()[-1]["overlaps"] == []


def test_a_torn_line_of_an_earlier_attempt_hides_no_other(tmp_path: Path) -> None:
    attempts = Attempts(tmp_path)
    attempts.began(0)
    with (tmp_path / "attempts.jsonl").open("a") as file:
        file.write('{"pid": 1, "star')
    attempts.ended(5)
    assert [one["event"] for one in attempts.read()] == ["began", "ended"]


@pytest.fixture
def torch_as_it_was() -> Iterator[Any]:
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    yield torch
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(False)


CHAR_LM = ["--steps", "12", "--batch", "4", "--context", "8", "--width", "16", "--log-every", "1"]


@pytest.mark.torch
def test_char_lm_interrupted_has_bit_equal_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, torch_as_it_was: Any
) -> None:
    from clusterops.train.examples import char_lm

    lines: list[str] = []

    def say(line: str) -> None:
        lines.append(line)
        if line.startswith(term_at[-1]):
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(char_lm, "say", say)
    term_at = ["never"]
    char_lm.main([*CHAR_LM, "--out", str(tmp_path / "calm")])
    rates = [one for one in lines if one.startswith("step")]
    assert len(rates) == 12
    calm_lines, lines[:] = list(lines), []
    for moment in ("step 4/12", "step 9/12"):
        term_at.append(moment)
        with pytest.raises(train.Leave):
            char_lm.main([*CHAR_LM, "--out", str(tmp_path / "torn")])
    term_at.append("never")
    char_lm.main([*CHAR_LM, "--out", str(tmp_path / "torn")])
    assert result(tmp_path / "torn") == result(tmp_path / "calm")
    # Loss by loss, so learning rate, dropout and data order are those of the undisturbed run.
    assert [one for one in lines if one.startswith("step")] == calm_lines[1:]


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_char_lm_with_two_ranks_interrupted_has_bit_equal_weights(tmp_path: Path) -> None:
    arguments = ["-m", "clusterops.train.examples.char_lm", *CHAR_LM, "--steps", "30", "--out"]
    calm = start_ranks([*arguments, str(tmp_path / "calm")], 2)
    assert [code for code, _, _ in ended(calm)] == [0, 0]
    torn = start_ranks([*arguments, str(tmp_path / "torn")], 2)
    seen = _wait_for_line(torn[0], "step 3/30")
    torn[1].send_signal(signal.SIGTERM)  # one rank only: the other must learn of it
    outcome = ended(torn)
    assert [code for code, _, _ in outcome] == [143, 143], (seen, outcome)
    assert not (tmp_path / "torn" / "result.json").exists()
    again = start_ranks([*arguments, str(tmp_path / "torn")], 2)
    results = ended(again)
    assert [code for code, _, _ in results] == [0, 0], results
    assert "start at step 0/" not in results[0][1]
    assert result(tmp_path / "torn") == result(tmp_path / "calm")


def _wait_for_line(process: "subprocess.Popen[str]", start: str) -> list[str]:
    """Reads a process's output until a line begins so; the rest stays in the pipe."""
    seen: list[str] = []
    assert process.stdout is not None
    watchdog = threading.Timer(60, process.kill)
    watchdog.start()
    try:
        while not (seen and seen[-1].startswith(start)):
            line = process.stdout.readline()
            assert line, f"the process ended before {start!r}: {seen}"
            seen.append(line)
    finally:
        watchdog.cancel()
    return seen
