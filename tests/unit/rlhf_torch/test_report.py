"""`report.html`: self-contained, escaped, made from whatever is in the folder."""

import re

import pytest

from rlhf import plots, report
from rlhf.run_folder import RunFolder

ROWS = [{"step": n, "objective/scores": n / 4, "objective/kl": 0.1 * n} for n in range(4)]


def page(**changes) -> str:
    settings = {"name": "run", "rows": ROWS, "config": "seed: 0", "ending": "all is done"}
    settings |= changes
    failed = settings.pop("failed", False)
    return report.html(*settings.values(), failed=failed)


def test_it_loads_nothing_from_anywhere():
    text = page()
    assert not re.search(r"(?:src|href)\s*=|@import|url\(|https?:", text)
    assert text.count("<svg") == 2
    assert "all is done" in text


def test_a_failure_is_shown_as_one_and_foreign_text_is_escaped():
    text = page(ending="<img onerror=x>", config="<script>", name="<b>", failed=True)
    assert 'class="end failed"' in text
    assert "&lt;img onerror=x&gt;" in text
    assert "<script>" not in text
    assert "<b>" not in text


def test_named_parts_of_the_score_have_a_plot():
    rows = [row | {"objective/scores/harmless": 0.5} for row in ROWS]
    assert "Parts of the score" in page(rows=rows)
    assert "harmless" in page(rows=rows)


def test_a_run_without_a_step_has_a_report_too(tmp_path):
    folder = RunFolder(tmp_path)
    path = report.write(folder, "TaskInvalid: no prompts", failed=True)
    assert "no step was made" in path.read_text()
    assert "TaskInvalid: no prompts" in path.read_text()


def test_torn_lines_and_odd_values_of_metrics_are_passed_over(tmp_path):
    folder = RunFolder(tmp_path)
    folder.append_metrics({"step": 0, "objective/scores": 0.5})
    folder.append_metrics({"step": "one", "objective/scores": None})
    with folder.metrics.open("a") as file:
        file.write('{"step": 2, "objec')
    text = report.write(folder, "interrupted", failed=True).read_text()
    assert "polyline" in text


def test_steps_that_will_be_made_anew_are_dropped_from_both_records(tmp_path):
    folder = RunFolder(tmp_path)
    for step in range(5):
        folder.append_metrics({"step": step})
    folder.samples.write_text(
        "".join(f'{{"step": {n // 2}, "seq": {n}, "reward": 0}}\n' for n in range(10))
    )
    with folder.metrics.open("a") as file:
        file.write('{"st')
    folder.rewind(3)
    assert [row["step"] for row in folder.metric_rows()] == [0, 1, 2]
    assert folder.samples.read_text().count("\n") == 6
    folder.rewind(0)
    assert folder.metric_rows() == []


def test_a_run_that_goes_on_has_a_report_after_the_first_step_and_then_now_and_then(tmp_path):
    folder, now = RunFolder(tmp_path), [0.0]
    running = report.RunningReport(folder, 100, clock=lambda: now[0])
    folder.append_metrics(ROWS[0])
    shown = []
    for done, at in ((1, 1.0), (2, 19.0), (3, 21.0), (4, 40.0), (5, 60.0)):
        now[0] = at
        running.step(done)
        shown.append(
            re.search(r"(\d+) of 100 steps are done; it goes on", folder.report.read_text())[1]
        )
    assert shown == ["1", "1", "3", "3", "5"]


def test_a_long_curve_is_drawn_with_few_points_and_keeps_its_ends_and_its_mean():
    curve = [(float(step), float(step % 7)) for step in range(10_000)]
    few = plots.thinned(curve)
    assert len(few) == 400
    assert few[0][0] < 25 < 9_975 < few[-1][0]
    assert sum(y for _, y in few) / 400 == pytest.approx(3.0, abs=0.01)
    assert plots.thinned(curve[:400]) == curve[:400]
