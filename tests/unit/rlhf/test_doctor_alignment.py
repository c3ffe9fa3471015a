"""The doctor on rewards that slipped: by how much, since when, and no alarm when they did not."""

import json
import random
from pathlib import Path

import pytest

from rlhf import sample_rows
from rlhf.doctor import evidence
from rlhf.doctor.correlation import demeaned, lagged_correlations
from rlhf.doctor.diagnosis import Diagnosis, diagnose
from rlhf.sample_rows import SampleRow

BATCH = 64


def written(
    folder: Path, count: int, shift: int = 0, since: int = 0, swapped: float = 0.0, audited=1, **row
):
    """Samples of a run whose rewards are `shift` late since a slot, some swapped with neighbours."""
    chance = random.Random(count + shift)
    # A policy that gets better: without taking out the mean of each batch, every lag would correlate.
    own = [chance.choice([0.0, 0.2, 0.4, 0.6, 0.8, 1.0]) + seq / count for seq in range(count)]
    received = [own[max(0, seq - shift)] if seq >= since else own[seq] for seq in range(count)]
    for seq in range(0, count - 1, 2):
        if chance.random() < swapped:
            received[seq], received[seq + 1] = received[seq + 1], received[seq]
    with (folder / sample_rows.NAME).open("wb") as file:
        sample_rows.write(
            file,
            [
                SampleRow(
                    seq // BATCH, seq, received[seq],
                    recomputed=own[seq] if chance.random() * audited < 1 else None,
                    features={"length": 10 * own[seq] + chance.random()}, **row,
                )
                for seq in range(count)
            ],
        )  # fmt: skip


def sentences(diagnosis: Diagnosis) -> str:
    return "\n".join(each.sentence for each in diagnosis.findings)


def test_rewards_of_their_own_samples_raise_no_alarm(tmp_path) -> None:
    written(tmp_path, 512)
    found = diagnose(tmp_path)
    assert found.healthy
    assert found.findings == ()
    assert found.shift is None
    assert "512 audited rewards are their own" in found.verdict


@pytest.mark.parametrize("shift", [1, 3, BATCH, 2 * BATCH])
def test_the_shift_is_found_to_the_sample(tmp_path, shift) -> None:
    written(tmp_path, 512, shift)
    found = diagnose(tmp_path)
    assert not found.healthy
    assert found.shift == shift
    samples = "1 sample" if shift == 1 else f"{shift} samples"
    assert found.verdict.startswith(f"rewards are {samples} late since seq")
    assert found.as_json()["alignment"]["correlation"] > 0.95


@pytest.mark.parametrize("shift", [0, 1, BATCH])
def test_a_few_audits_a_batch_suffice_for_the_scan(tmp_path, shift) -> None:
    """One in sixteen: their own mean would be mostly chance, and hide half of the correlation."""
    written(tmp_path, 2048, shift, audited=16)
    found = diagnose(tmp_path)
    figures = found.as_json()["alignment"]
    assert found.shift == (shift or None)
    assert figures["lag"] == shift
    assert figures["correlation"] > 0.9


def test_where_the_shift_began_is_named_with_an_example(tmp_path) -> None:
    written(tmp_path, 1024, shift=1, since=500)
    verdict = diagnose(tmp_path).verdict
    since = int(verdict.split("since seq ")[1].split()[0])
    assert 500 <= since <= 504, "equal rewards next to each other hide the very first"
    assert f"the reward that s{since} got was computed on s{since - 1}" in verdict


def test_a_few_swapped_rewards_show_in_the_audits_alone(tmp_path) -> None:
    written(tmp_path, 512, swapped=0.1)
    found = diagnose(tmp_path)
    assert (found.healthy, found.shift) == (False, None)
    assert "audited rewards are not those of their samples" in found.verdict
    figures = found.as_json()["audits"]
    assert 10 < figures["failed"] < 100
    assert figures["chanceToMissSwaps"] < 1e-6


def test_rewards_of_no_sample_at_all_are_named_without_a_lag(tmp_path) -> None:
    written(tmp_path, 512)
    rows = [
        {**json.loads(line), "reward": random.Random(number).random()}
        for number, line in enumerate((tmp_path / sample_rows.NAME).read_text().splitlines())
    ]
    (tmp_path / sample_rows.NAME).write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = diagnose(tmp_path)
    assert found.shift is None
    assert "no lag within two batches explains it" in found.verdict


def test_without_recomputed_rewards_a_cheap_feature_betrays_the_shift(tmp_path) -> None:
    written(tmp_path, 2048, shift=1)
    rows = [json.loads(line) for line in (tmp_path / sample_rows.NAME).read_text().splitlines()]
    for row in rows:
        del row["recomputed"]
    (tmp_path / sample_rows.NAME).write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = diagnose(tmp_path)
    assert "rewards go with the length of the sample 1 slots before" in sentences(found)


def test_canaries_name_the_distance(tmp_path) -> None:
    written(tmp_path, 256)
    path = tmp_path / sample_rows.NAME
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[100] |= {"canary": True, "recomputed": 0.3125}
    rows[102]["reward"] = 0.3125
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    told = sentences(diagnose(tmp_path))
    assert "1 of 1 canaries have another reward, first s100: 1 of them were found +2 slots" in told


def test_lines_of_a_later_life_replace_earlier_ones_and_a_torn_end_is_left_out(tmp_path) -> None:
    written(tmp_path, 256, shift=1)
    first = (tmp_path / sample_rows.NAME).read_bytes()
    written(tmp_path, 256)
    good = (tmp_path / sample_rows.NAME).read_bytes()
    (tmp_path / sample_rows.NAME).write_bytes(first + good + b'{"step": 9, "se')
    assert diagnose(tmp_path).healthy


def test_a_broken_line_in_the_middle_is_a_fault(tmp_path) -> None:
    written(tmp_path, 64)
    content = (tmp_path / sample_rows.NAME).read_bytes().splitlines(keepends=True)
    content[5] = b"not json\n"
    (tmp_path / sample_rows.NAME).write_bytes(b"".join(content))
    found = diagnose(tmp_path)
    assert not found.healthy
    assert "line 6" in found.verdict


def test_a_folder_without_a_run_is_refused(tmp_path) -> None:
    with pytest.raises(evidence.NoRun, match="holds no run"):
        diagnose(tmp_path)


def test_a_policy_that_moves_and_learns_nothing_is_worth_a_warning(tmp_path) -> None:
    chance = random.Random(1)
    (tmp_path / evidence.METRICS).write_text(
        "".join(
            json.dumps(
                {"step": step, "objective/kl": step / 100, "objective/scores": chance.random()}
            )
            + "\n"
            for step in range(60)
        )
    )
    found = diagnose(tmp_path)
    assert found.healthy
    assert "nothing is learned" in sentences(found)


def test_the_correlation_agrees_with_the_sum_written_out() -> None:
    chance = random.Random(4)
    here = [chance.random() if chance.random() < 0.8 else None for _ in range(150)]
    there = [chance.random() if chance.random() < 0.7 else None for _ in range(150)]
    here, there = demeaned(here, 30), demeaned(there, 30)
    for lag, value in lagged_correlations(here, there, 10).items():
        pairs = [
            (here[place], there[place - lag])
            for place in range(150)
            if 0 <= place - lag < 150 and None not in (here[place], there[place - lag])
        ]
        products = sum(a * b for a, b in pairs)
        energy = sum(a * a for a, _ in pairs) * sum(b * b for _, b in pairs)
        assert value == pytest.approx(products / energy**0.5, abs=1e-9)


def test_a_constant_series_correlates_with_nothing() -> None:
    assert lagged_correlations([0.0] * 100, [0.0] * 100, 5) == {}
