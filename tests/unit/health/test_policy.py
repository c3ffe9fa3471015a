"""Policies: what is refused, how a site's file is laid over the shipped one, what differs."""

import pytest
from support.health_builders import policy

from health import shipped
from health.policy import yaml_text
from health.policy.differences import Difference, differences
from health.policy.schema import CodeSet
from health.policy.yaml_text import PolicyError


def test_the_shipped_policy_is_sound() -> None:
    assert yaml_text.contradictions(shipped.policy()) == []
    assert policy() == shipped.policy()


def test_no_shipped_rule_turns_a_single_report_into_a_ticket() -> None:
    assert all(each.at_least > 1 for each in shipped.policy().thresholds)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("grouping: {silence_second: 3}", "silence_second"),
        ("grouping: {silence_seconds: -3}", "silence_seconds"),
        ("grouping: {silence_seconds: many}", "silence_seconds"),
        ("limits: {retired_pages: 0}", "retired_pages"),
        ("thresholds: [{name: bus_lost_again, action: reboot}]", "reboot"),
        ("thresholds: [{name: bus_lost_again, at_least: 0}]", "at_least"),
        ("thresholds: [{name: mine, codes: ['xid:79']}]", "counted"),
        ("thresholds: [{codes: ['xid:79']}]", "mapping with 'name'"),
        ("thresholds: [{name: bus_lost_again, codes: ['79']}]", "codes"),
        ("thresholds: [{name: bus_lost_again, codes: ['xid:9-3']}]", "runs backwards"),
        ("thresholds: [{name: bus_lost_again}, {name: bus_lost_again}]", "given twice"),
        ("thresholds: [{name: bus_lost_again, window_seconds: 99999999}]", "window_seconds"),
        ("thresholds: [{name: bus_lost_again, window_seconds: 864000}]", "longer than history_seconds"),
        ("overrides: [{code: 'xid:79', action: none}]", "reason"),
        ("overrides: [{code: 'xid:*', action: none, reason: all}]", "code"),
        ("grouping: {silence_seconds: 3}\ngrouping: {silence_seconds: 4}", "line 2: the key 'grouping' is given twice"),
        ("limits: {retired_pages: 3, retired_pages: 4}", "given twice"),
        ("a: &x {b: 1}\nc: *x", "anchors"),
        ("grouping: {quiet_seconds: 10}", "quiet_seconds is shorter"),
        ("- a list", "mapping of sections"),
        ("{[", "no YAML"),
        ("\x00", "no YAML"),
        ("a: " + "[" * 5000, "no YAML"),
        ("x" * 2_000_000, "more than"),
    ],
)  # fmt: skip
def test_a_wrong_policy_is_refused_with_the_place(text: str, said: str) -> None:
    with pytest.raises(PolicyError) as error:
        policy(text)
    assert said in str(error.value)


def test_more_of_the_same_may_not_call_for_less() -> None:
    with pytest.raises(PolicyError, match="calls for less"):
        policy(
            "thresholds: [{name: mine, codes: ['xid:79'], counted: incidents, at_least: 5,"
            " window_seconds: 3600, action: reset_gpu, why: odd}]"
        )


def test_two_faults_may_not_explain_each_other() -> None:
    with pytest.raises(PolicyError, match="explain each other"):
        policy(
            "causes: [{name: mine, effects: ['xid:120'], causes: ['xid:119'], where: same_gpu,"
            " within_seconds: 5}]"
        )


def test_a_sites_file_names_only_what_differs() -> None:
    mine = policy(
        "jobs: {blame_seconds: 60}\n"
        "thresholds:\n"
        "  - {name: bus_lost_again, at_least: 3}\n"
        "  - {name: uncontained_storm, disabled: true}\n"
        "  - {name: app_storm, codes: ['xid:43'], counted: events, at_least: 20,"
        " window_seconds: 3600, action: reset_gpu, why: as agreed}\n"
    )
    assert mine.jobs.blame_seconds == 60
    assert mine.jobs.teardown_seconds == shipped.policy().jobs.teardown_seconds
    by_name = {each.name: each for each in mine.thresholds}
    assert by_name["bus_lost_again"].at_least == 3
    assert "uncontained_storm" not in by_name
    assert by_name["app_storm"].codes == ("xid:43",)


def test_differences_name_place_and_both_values() -> None:
    changed = policy(
        "limits: {retired_pages: 30}\nthresholds: [{name: bus_lost_again, at_least: 3}]"
    )
    assert differences(shipped.policy(), changed) == [
        Difference("limits.retired_pages", 60, 30),
        Difference("thresholds.bus_lost_again.at_least", 2, 3),
    ]
    assert differences(changed, changed) == []


@pytest.mark.parametrize(
    ("patterns", "inside", "outside"),
    [
        (("xid:79",), ["xid:79"], ["xid:7", "sxid:79", "xid:790"]),
        (("xid:144-150",), ["xid:144", "xid:147", "xid:150"], ["xid:143", "xid:151", "sxid:147"]),
        (("sxid:*",), ["sxid:1"], ["xid:1"]),
        (("*",), ["xid:1", "nvml:x"], []),
    ],
)
def test_code_patterns(patterns, inside, outside) -> None:
    codes = CodeSet(patterns)
    assert all(each in codes for each in inside)
    assert not any(each in codes for each in outside)


@pytest.mark.parametrize(
    ("one", "other", "meet"),
    [
        (("xid:79",), ("xid:70-80",), True),
        (("xid:79",), ("sxid:*",), False),
        (("sxid:7",), ("sxid:*",), True),
        (("*",), ("hint:probe_failed",), True),
    ],
)
def test_whether_two_patterns_can_mean_one_code(one, other, meet) -> None:
    assert CodeSet(one).meets(CodeSet(other)) is meet
    assert CodeSet(other).meets(CodeSet(one)) is meet
