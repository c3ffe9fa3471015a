"""The table of what ranks reported last."""

from hypothesis import given
from hypothesis import strategies as st

from clusterops.api.heartbeat import Durable, Heartbeat
from clusterops.operator.heartbeats import HeartbeatTable


def test_repeated_reports_are_no_news() -> None:
    table = HeartbeatTable()
    beat = Heartbeat(1, 0, 5, durable=Durable(5, ""), finished=True)
    assert all(table.record("j", beat, 0.0))
    assert not any(table.record("j", beat, 1.0))


def test_the_age_of_a_save_counts_from_when_it_was_first_told() -> None:
    table = HeartbeatTable()
    table.record("j", Heartbeat(1, 0, 5, durable=Durable(5, "")), 10.0)
    table.record("j", Heartbeat(1, 0, 5, durable=Durable(5, "")), 12.0)
    (report,) = table.reports("j", 1, 13.0)
    assert (report.age_seconds, report.durable_age_seconds) == (1.0, 3.0)


def test_a_newer_attempt_replaces_an_older_one_and_never_the_other_way() -> None:
    table = HeartbeatTable()
    table.record("j", Heartbeat(2, 0, 5), 0.0)
    table.record("j", Heartbeat(1, 1, 9), 1.0)
    assert [r.step for r in table.reports("j", 2, 1.0)] == [5]
    assert table.reports("j", 1, 1.0) == ()
    table.record("j", Heartbeat(3, 0, 1), 2.0)
    assert table.reports("j", 2, 2.0) == ()


def test_a_problem_is_known_until_a_report_comes_without_one() -> None:
    table = HeartbeatTable()
    table.record("j", Heartbeat.from_wire(Heartbeat(1, 0, 5, problem="disk full").to_wire()), 0.0)
    assert [r.problem for r in table.reports("j", 1, 0.0)] == ["disk full"]
    table.record("j", Heartbeat(1, 0, 5), 1.0)
    assert [r.problem for r in table.reports("j", 1, 1.0)] == [""]


@given(order=st.permutations(range(1, 7)), repeat=st.integers(1, 3))
def test_overtaking_and_doubled_reports_end_in_the_same_state(
    order: list[int], repeat: int
) -> None:
    table = HeartbeatTable()
    for step in order * repeat:
        table.record("j", Heartbeat(1, 0, step, finished=step == 6), 0.0)
    (report,) = table.reports("j", 1, 0.0)
    assert report.step == 6
    assert report.finished


def test_the_rate_ignores_the_jump_of_a_resume() -> None:
    table = HeartbeatTable()
    for at, step in ((0.0, 0), (1.0, 1000), (2.0, 1002), (3.0, 1004)):
        table.record("j", Heartbeat(1, 0, step), at)
    assert table.steps_per_second("j", 1) == 2.0
    assert table.steps_per_second("j", 2) is None


def test_a_forgotten_job_takes_no_memory() -> None:
    table = HeartbeatTable()
    table.record("j", Heartbeat(1, 0, 1), 0.0)
    table.forget("j")
    table.forget("j")
    assert (len(table), table.ranks()) == (0, 0)
