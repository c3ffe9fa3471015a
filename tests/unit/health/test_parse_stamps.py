"""Clocks of any kind on one line of time that never runs backwards."""

import pytest

from health.parse import stamps
from health.parse.stamps import Timeline, stamp

DAY = 86_400.0


@pytest.mark.parametrize(
    ("head", "uptime"),
    [
        ("[12345.678901] ", 12345.678901),
        ("[    1.500000] [ T1946] ", 1.5),
        ("Aug 10 15:36:05 host kernel: [12.000001] ", 12.000001),
        ("4,2215,1843308145,-;", 1843.308145),
    ],
)
def test_uptime(head: str, uptime: float) -> None:
    assert stamp(head).uptime == uptime


def test_the_record_of_dev_kmsg_has_its_sequence() -> None:
    assert stamp("4,2215,1843308145,-;").sequence == 2215


@pytest.mark.parametrize(
    ("head", "wall"),
    [
        ("1970-01-02T00:00:00Z host kernel: ", DAY),
        ("kern  :warn  : 1970-01-02T00:00:00,250000+00:00 ", DAY + 0.25),
        ("1970-01-02T02:00:00+02:00 ", DAY),
        ("1970-01-01T22:00:00-0200 ", DAY),
        ("[Fri Jan  2 00:00:01 1970] ", DAY + 1),
        ("2000-03-01T00:00:00Z ", 951_868_800.0),
        ("2026-09-14T04:48:45Z ", 1_789_361_325.0),
        ("00:00:02  ", 2.0),
        ("", None),
        ("host kernel: ", None),
    ],
)
def test_wall_time(head: str, wall: float | None) -> None:
    assert stamp(head).wall == wall


def test_a_month_of_any_language_keeps_durations() -> None:
    first = stamp("kwi 15 10:00:00 host kernel: ").wall
    later = stamp("kwi 15 10:01:30 host kernel: ").wall
    assert first is not None
    assert later is not None
    assert later - first == 90


@pytest.mark.parametrize(
    "head", ["Foo 99 99:99:99 host kernel: ", "0000-00-00T00:00:00Z ", "9999-99-99 99:99:99 "]
)
def test_impossible_dates_are_numbers_and_no_errors(head: str) -> None:
    Timeline().place(stamp(head))


def placed(*heads: str) -> list[float]:
    timeline = Timeline()
    return [timeline.place(stamp(head)) for head in heads]


def test_durations_follow_the_uptime_and_not_a_step_of_the_wall_clock() -> None:
    first, second = placed(
        "Aug 10 15:36:05 host kernel: [100.000000] ", "Aug 12 03:00:00 host kernel: [107.500000] "
    )
    assert second - first == 7.5


def test_a_wall_clock_that_is_set_back_lets_time_go_on() -> None:
    one, two, three = placed(
        "2025-01-10T10:00:00Z ", "2025-01-09T10:00:00Z ", "2025-01-09T10:00:09Z "
    )
    assert two == one
    assert three - two == 9


def test_disorder_between_writers_is_no_step_of_the_clock() -> None:
    one, two, three = placed(
        "2025-01-10T10:00:10Z ", "2025-01-10T10:00:09Z ", "2025-01-10T10:00:12Z "
    )
    assert two == one
    assert three - one == 2


def test_a_line_without_a_stamp_happens_with_its_neighbour() -> None:
    first, second, third = placed("[5.000000] ", "", "[6.000000] ")
    assert first == second
    assert third - second == 1


def test_an_uptime_that_begins_anew_is_a_new_boot_later_on() -> None:
    timeline = Timeline()
    before = timeline.place(stamp("[900000.000000] "))
    after = timeline.place(stamp("[12.000000] "))
    assert timeline.boot == 1
    assert after >= before
    timeline.place(stamp("[11.900000] "))
    assert timeline.boot == 1, "a little disorder is no reboot"
    assert stamps.REBOOT_SECONDS > 0.1
