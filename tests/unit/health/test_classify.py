"""Logs from lines to verdicts, as the command line prints them."""

import io
import json
from typing import NamedTuple

import msgspec
import pytest

from clusterops.cli import health as command
from clusterops.cli.main import main
from health import classify, report, shipped
from health.actions import Action, Standing
from health.verdict.node import judge_node

LOST = (
    "[100.000001] NVRM: Xid (PCI:0000:1b:00): 79, pid=7, name=python, GPU has fallen off the bus."
)
REBOOT = "[100.100001] NVRM: Xid (PCI:0000:1b:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (OS Reboot)"
BAD = "[500.000001] NVRM: Xid (PCI:0000:43:00): 31, pid=8, name=python, Ch 00000008"
LOG = [LOST, "[100.000002] systemd[1]: something else", REBOOT, BAD]


def judge(own=None):
    return classify.judge_for(shipped.catalogue(), None, own or shipped.policy())


def test_per_line_gives_one_verdict_for_each_input_line_in_order() -> None:
    found = list(classify.per_line([*LOG, ""], judge()))
    assert [each.line for each in found] == [1, 2, 3, 4, 5]
    assert [each.action.value for each in found] == [
        "reboot_node",
        "none",
        "reboot_node",
        "restart_app",
        "none",
    ]
    assert msgspec.to_builtins(found[0]) == {
        "line": 1, "kind": "xid", "code": 79, "gpu": "0000:1b:00.0", "action": "reboot_node",
        "rule": "catalogue", "why": "Xid 79: the GPU does not answer on the PCI bus any more",
    }  # fmt: skip
    assert (found[1].kind, found[1].code, found[1].gpu) == ("none", None, None)


def test_a_json_string_is_one_record() -> None:
    record = "NVRM: The NVIDIA GPU 0000:b3:00.0\n  NVRM: (PCI ID: 10de:26b5)\n  NVRM: fallen off the bus and"
    (found,) = classify.per_line([json.dumps(record)], judge())
    assert (found.kind, found.code, found.gpu) == ("bus", 79, "0000:b3:00.0")


@pytest.mark.parametrize(
    "raw", ['"', '"open', '"a" and "b"', "[" * 100_000, '"\\ud800"', "\0", "\ufeff"]
)
def test_a_line_that_only_looks_like_json_is_a_line(raw: str) -> None:
    (found,) = classify.per_line([raw], judge())
    assert found.action is Action.NONE


def test_a_boot_in_which_the_driver_tells_no_fault_ends_what_needed_a_reboot() -> None:
    loads = "[    9.000001] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.95.05"
    told = [LOST, REBOOT, loads, loads]
    before = judge_node(classify.folded(told[:2], judge(), shipped.policy()))
    after = judge_node(classify.folded(told, judge(), shipped.policy()))
    assert (before.standing, after.standing) == (Standing.REBOOT_NODE, Standing.HEALTHY)
    assert len(after.incidents) == 1
    assert "records_lost" not in report.counted(after)


def exported(**fields) -> str:
    message = LOST.partition("] ")[2]
    entry = {"_TRANSPORT": "kernel", "__MONOTONIC_TIMESTAMP": "100000001", "MESSAGE": message}
    return json.dumps(entry | fields)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"MESSAGE": list(LOST.partition("] ")[2].encode())},
        {"__MONOTONIC_TIMESTAMP": None},
        {"__MONOTONIC_TIMESTAMP": "9" * 400},
    ],
)
def test_an_exported_entry_of_the_journal_is_its_message(fields) -> None:
    (found,) = classify.per_line([exported(**fields)], judge())
    assert (found.kind, found.code, found.gpu) == ("xid", 79, "0000:1b:00.0")


def test_an_exported_entry_keeps_its_time() -> None:
    (event,) = classify.events([exported()], {})
    assert event.monotonic_us == 100_000_001


@pytest.mark.parametrize(
    "raw",
    [
        exported(_TRANSPORT="stdout"),
        exported(_TRANSPORT=None),
        exported(MESSAGE=None),
        exported(MESSAGE=[300]),
        exported(MESSAGE=[[]]),
        exported(MESSAGE={"_TRANSPORT": "kernel"}),
        exported()[:-1],
        '{"_TRANSPORT":' * 50_000,
    ],
)
def test_any_other_object_is_no_word_of_the_kernel(raw: str) -> None:
    (found,) = classify.per_line([raw], judge())
    assert found.action is Action.NONE


def test_every_line_that_is_not_used_is_counted_by_reason() -> None:
    quoted = "Aug 10 15:36:05 host python[9]: NVRM: Xid (PCI:0000:1b:00): 79, x"
    broken = "[1.000001] NVRM: Xid (PCI:0000:1b:00): x"
    history = classify.folded(
        [*LOG, quoted, broken, "NVRM: loading", "x" * 20_000], judge(), shipped.policy()
    )
    expected = {
        "not_a_driver_line": 2,
        "not_from_kernel": 1,
        "malformed": 1,
        "driver_message": 1,
        "cut": 1,
    }
    assert {reason: history.counts[reason] for reason in expected} == expected


def test_events_carry_sequence_and_uptime_where_the_log_has_them() -> None:
    (event,) = classify.events(["4,2215,1843308145,-;NVRM: Xid (PCI:0000:1b:00): 79, x"], {})
    assert (event.sequence, event.monotonic_us, event.at) == (2215, 1_843_308_145, 1843.308145)


@pytest.fixture
def log(tmp_path):
    file = tmp_path / "kern.log"
    file.write_text("\n".join(LOG) + "\n")
    return file


class Ran(NamedTuple):
    code: int
    stdout: str
    stderr: str


@pytest.fixture
def run(capsys):
    def command_line(*words: object) -> Ran:
        code = main(["health", *(str(word) for word in words)])
        return Ran(code, *capsys.readouterr())

    return command_line


def test_the_command_prints_a_table_and_one_object_for_each_incident(run, log) -> None:
    table = run("classify", log)
    assert table.code == 0
    assert "reboot_node" in table.stdout
    assert "RebootNode:" in table.stdout
    objects = [
        json.loads(line)
        for line in run("classify", log, "-o", "jsonl").stdout.splitlines()
        if line.startswith("{")
    ]
    assert [(each["action"], each["open"]) for each in objects] == [
        ("reboot_node", True),
        ("restart_app", True),
    ]
    assert objects[0]["evidence"][0]["text"] == LOST


def test_the_command_judges_each_line_of_any_bytes(run, tmp_path) -> None:
    file = tmp_path / "bytes"
    file.write_bytes(
        LOST.encode() + b"\r\n\xff\xfe\x00\n" + b"A" * 1_000_000 + b"\n" + BAD.encode()
    )
    printed = run("classify", "--per-line", "-o", "jsonl", file).stdout.splitlines()
    found = [json.loads(line) for line in printed]
    assert [(each["line"], each["action"]) for each in found] == [
        (1, "reboot_node"), (2, "none"), (3, "none"), (4, "restart_app"),
    ]  # fmt: skip
    assert set(found[0]) == {"line", "kind", "code", "gpu", "action", "rule", "why"}


def test_control_characters_of_the_log_do_not_reach_the_terminal(run, tmp_path) -> None:
    file = tmp_path / "kern.log"
    file.write_text(
        "[1.000001] NVRM: Xid (PCI:0000:1b:00): 154, \x1b]0;title\x07 to \u202e\x1b[2J\n"
    )
    for words in (
        ["classify", file],
        ["classify", "--per-line", file],
        ["explain", file.read_text()],
    ):
        printed = run(*words).stdout
        assert printed.replace("\n", "").isprintable(), words


def test_saved_evidence_leads_to_the_same_decision_again(run, log, tmp_path) -> None:
    saved = tmp_path / "evidence.jsonl"
    assert run("classify", log, "--save", saved).code == 0
    again = run("replay", saved)
    assert (again.code, "the same decision again" in again.stderr) == (0, True)
    lenient = tmp_path / "policy.yaml"
    lenient.write_text("overrides: [{code: 'xid:31', action: none, reason: known bug}]\n")
    other = run("replay", saved, "--policy", lenient)
    assert (other.code, "decided otherwise" in other.stderr) == (1, True)


def test_a_log_can_be_replayed_as_it_is(run, log) -> None:
    assert "RebootNode:" in run("replay", log).stdout


def test_policies_are_compared_on_a_log(run, log, tmp_path) -> None:
    strict = tmp_path / "policy.yaml"
    strict.write_text(
        "overrides: [{code: 'xid:31', action: reset_gpu, reason: this site is careful}]\n"
    )
    printed = run("policy", "diff", "-", strict, "--on", log).stdout
    assert "overrides.xid:31.action: None -> reset_gpu" in printed
    assert "restart_app (catalogue) -> reset_gpu (site_override)" in printed
    assert "the decisions are the same" in run("policy", "diff", "-", "-", "--on", log).stdout


def test_the_shipped_policy_is_printed_as_it_is_written(run) -> None:
    assert run("policy", "show").stdout == shipped.policy_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--driver", "newest"), "is no driver version"),
        (("--policy", "{policy}"), "given twice"),
        (("--per-line", "--save", "x"), "--save needs incidents"),
    ],
)
def test_wrong_usage_is_refused_in_words(run, log, tmp_path, words, said) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("limits: {}\nlimits: {}\n")
    result = run("classify", log, *(word.format(policy=policy) for word in words))
    assert result.code == 2
    assert said in result.stderr


@pytest.mark.parametrize(
    "content",
    ['{"format":"clusterops.health.evidence/2"}', '{"format":"clusterops.health.evidence/1"', "{}"],
)
def test_broken_evidence_is_refused_or_read_as_a_log(run, tmp_path, content) -> None:
    file = tmp_path / "evidence.jsonl"
    file.write_text(content + "\n")
    result = run("replay", file)
    assert "this should not happen" not in result.stderr
    assert (result.code == 1) is ("evidence/" in content)


def test_a_log_is_never_read_whole_for_a_line_without_end() -> None:
    lines = list(command.raw_lines(io.BytesIO(b"a" * 100 + b"\nb\n" + b"c" * 30), limit=10))
    assert lines == ["a" * 10, "b", "c" * 10]
