"""The node's line of time under reboots and clocks that are set."""

from hypothesis import given
from hypothesis import strategies as st

from health import timeline
from health.timeline import Boot, entered

WALL = 1_750_000_000.0


def test_a_boot_that_is_known_goes_on_where_it_was():
    first = entered([], "b1", uptime=100.0, wall=WALL)
    again = entered([first], "b1", uptime=160.0, wall=WALL + 60.0)
    assert again == first._replace(uptime=160.0)
    assert again.at(150.0) == 150.0


def test_a_reboot_lies_later_by_the_time_that_the_node_was_off():
    first = entered([], "b1", uptime=100.0, wall=WALL)
    second = entered([first], "b2", uptime=5.0, wall=WALL + 65.0)
    assert second.number == 2
    assert second.at(0.0) - first.at(100.0) == 60.0


def test_a_clock_that_was_set_back_over_a_reboot_does_not_reorder_history():
    first = entered([], "b1", uptime=100.0, wall=WALL)
    second = entered([first], "b2", uptime=5.0, wall=0.0)
    assert second.at(0.0) == first.at(100.0) + timeline.SHORTEST_OFF_SECONDS


def test_a_clock_that_went_years_ahead_forgets_at_most_a_week():
    first = entered([], "b1", uptime=100.0, wall=WALL)
    second = entered([first], "b2", uptime=5.0, wall=WALL * 2)
    assert second.at(0.0) == first.at(100.0) + timeline.LONGEST_OFF_SECONDS


def test_a_step_of_the_clock_moves_timestamps_and_not_the_line():
    boot = entered([], "b1", uptime=100.0, wall=WALL)
    stepped = timeline.brought_up_to_date(boot, uptime=110.0, wall=WALL + 3610.0)
    assert stepped.at(110.0) == boot.at(110.0)
    assert stepped.wall(stepped.at(110.0)) == WALL + 3610.0


def test_drift_does_not_move_timestamps():
    boot = entered([], "b1", uptime=100.0, wall=WALL)
    later = timeline.brought_up_to_date(boot, uptime=200.0, wall=WALL + 100.5)
    assert later.wall(later.at(50.0)) == boot.wall(boot.at(50.0))


steps = st.lists(
    st.tuples(
        st.sampled_from(["run", "reboot"]),
        st.floats(0.0, 1e6),
        st.floats(0.0, 4e9),
    ),
    min_size=1,
    max_size=12,
)


@given(steps)
def test_whatever_the_wall_clock_says_later_events_lie_later(story):
    boots: list[Boot] = []
    uptime, number, last = 0.0, 0, -1.0
    for kind, seconds, wall in story:
        if kind == "reboot":
            number, uptime = number + 1, 0.0
        uptime += seconds
        boot = entered(boots, f"b{number}", uptime=uptime, wall=wall)
        boots = [b for b in boots if b.id != boot.id] + [boot]
        assert boot.at(uptime) >= last
        last = boot.at(uptime)
        assert timeline.wall_time(boots, last) == boot.wall(last)
