"""The group `health`: what the lines of a kernel log mean for GPUs, and why; how the nodes are.

The commands of this file need neither a cluster nor a GPU: they read a log and print.
"""

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from clusterops.cli import errors
from clusterops.cli.main import LazyGroup, Row

MODULE = "clusterops.cli.health"
COMMANDS = (
    Row("classify", MODULE, "classify", "Fold a kernel log into incidents, or judge each line."),
    Row("explain", MODULE, "explain", "Why a line or an Xid means what it means."),
    Row("replay", MODULE, "replay", "Decide again from a file of evidence or a log."),
    Row("daemon", f"{MODULE}_daemon", "daemon", "Watch this node's GPUs and say how they are."),
    Row(
        "reader", f"{MODULE}_daemon", "reader", "Hand the kernel's log to the daemon (privileged)."
    ),
    Row("policy", MODULE, "policy_app", "The file with thresholds: show, check, compare."),
    Row(
        "nodes", f"{MODULE}_nodes", "nodes", "How each node's GPUs are, and what is done about it."
    ),
    Row(
        "incidents",
        f"{MODULE}_nodes",
        "incidents",
        "What was seen on the nodes, and why it counts.",
    ),
    Row("tickets", f"{MODULE}_nodes", "tickets", "Which boards wait for the vendor."),
    Row("inject", f"{MODULE}_inject", "inject", "Break a simulated GPU, for a rehearsal."),
    Row("stop", f"{MODULE}_switch", "stop", "The kill switch: nothing is done to nodes any more."),
    Row("go", f"{MODULE}_switch", "go", "Let the operator go on with nodes after a stop."),
    Row(
        "simulated-repair",
        f"{MODULE}_inject",
        "simulated_repair",
        "Part of local mode.",
        hidden=True,
    ),
)
POLICY_COMMANDS = (
    Row("show", MODULE, "policy_show", "Print the shipped policy."),
    Row("diff", MODULE, "policy_diff", "What two policies say of one log."),
)


class HealthGroup(LazyGroup):
    """The commands below `clusterops health`."""

    rows = COMMANDS


class PolicyGroup(LazyGroup):
    """The commands below `clusterops health policy`."""

    rows = POLICY_COMMANDS


_SETTINGS: dict[str, Any] = {
    "add_completion": False,
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
    "no_args_is_help": True,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}
app = typer.Typer(cls=HealthGroup, **_SETTINGS)
policy_app = typer.Typer(cls=PolicyGroup, **_SETTINGS)


@app.callback()
def health() -> None:
    """GPU health: from a line of the kernel's log to the right action."""


@policy_app.callback()
def policy() -> None:
    """The policy: thresholds, causes, and what this site decided."""


class LogFormat(StrEnum):
    """How verdicts are printed."""

    TABLE = "table"
    JSONL = "jsonl"


LONGEST_LINE = 65_536  # bytes; what follows of a longer line is passed over

Log = Annotated[Path, typer.Argument(metavar="FILE", help="Kernel log; - is standard input.")]
Driver = Annotated[
    str | None, typer.Option(help="Version of the GPU driver that wrote the log, as 580.95.05.")
]
PolicyFile = Annotated[
    Path | None, typer.Option("--policy", help="Policy laid over the shipped one (YAML).")
]
Output = Annotated[LogFormat, typer.Option("-o", "--output", help="table or jsonl.")]


def classify(
    file: Log = Path("-"),
    per_line: Annotated[
        bool, typer.Option("--per-line", help="Judge each line alone; one object a line.")
    ] = False,
    driver: Driver = None,
    policy_file: PolicyFile = None,
    save: Annotated[
        Path | None, typer.Option(help="Also write what the verdict was made from, for replay.")
    ] = None,
    output: Output = LogFormat.TABLE,
) -> None:
    """Fold a kernel log into incidents, each with its action, the rule and the evidence.

    An input line that is a JSON string is one record, with line breaks in it if need be.
    """
    from health import classify as classifying
    from health import shipped
    from health.verdict.node import judge_node

    if per_line and save is not None:
        raise errors.CommandError("--save needs incidents", "leave --per-line out", errors.USAGE)
    used = _policy(policy_file)
    judge = classifying.judge_for(shipped.catalogue(), _version(driver), used)
    with _opened(file) as stream:
        if per_line:
            _print_lines(classifying.per_line(raw_lines(stream), judge), output)
            return
        if save is None:
            verdict = judge_node(classifying.folded(raw_lines(stream), judge, used))
        else:
            verdict = _recorded(raw_lines(stream), driver, used, save)
    _print_verdict(verdict, output)


def explain(
    asked: Annotated[str, typer.Argument(metavar="LINE|CODE", help="A line, or 79, sxid:20034.")],
    driver: Driver = None,
    policy_file: PolicyFile = None,
) -> None:
    """Why a line or a code means what it means: what was read, the rule, what would change it."""
    from clusterops.cli import output as printer
    from health import explain as explaining
    from health import shipped

    points = explaining.explain(asked, shipped.catalogue(), _policy(policy_file), _version(driver))
    width = max(len(point.about) for point in points)
    for point in points:
        printer.write(printer.safe(f"{point.about.ljust(width)}  {point.says}"))


def replay(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Evidence, or a kernel log.")],
    driver: Driver = None,
    policy_file: PolicyFile = None,
    output: Output = LogFormat.TABLE,
) -> int:
    """Decide again. Exit code 1 when recorded evidence now leads to another decision."""
    from clusterops.cli import output as printer
    from health import evidence_file, shipped

    with _opened(file) as stream:
        lines = list(raw_lines(stream, limit=1 << 24))
    if not lines or not evidence_file.is_evidence(lines[0]):
        classify(file, driver=driver, policy_file=policy_file, output=output)
        return errors.DONE
    recorded = _evidence(file, lines)
    other = _policy(policy_file) if policy_file is not None else None
    verdict = evidence_file.decide_again(recorded, shipped.catalogue(), other)
    _print_verdict(verdict, output)
    if recorded.decision is None:
        return errors.DONE
    changed = evidence_file.differences(recorded.decision, evidence_file.decision(verdict))
    for line in changed:
        printer.say(f"decided otherwise: {line}")
    printer.say("the decision is another one" if changed else "the same decision again")
    return errors.FAILED if changed else errors.DONE


def policy_show() -> None:
    """Print the shipped policy, to begin a file of one's own with."""
    from clusterops.cli import output as printer
    from health import shipped

    printer.write(shipped.policy_text())


def policy_diff(
    before: Annotated[Path, typer.Argument(metavar="A", help="Policy; - is the shipped one.")],
    after: Annotated[Path, typer.Argument(metavar="B", help="Policy; - is the shipped one.")],
    on: Annotated[Path, typer.Option("--on", metavar="FILE", help="Kernel log or evidence.")],
    driver: Driver = None,
) -> None:
    """What two policies say of one log: values that differ, and decisions that do."""
    from clusterops.cli import output as printer
    from health import evidence_file
    from health.policy.differences import differences

    first, second = _policy(_named(before)), _policy(_named(after))
    for each in differences(first, second):
        printer.write(printer.safe(f"{each.place}: {each.before} -> {each.after}"))
    decisions = [evidence_file.decision(_verdict_on(on, used, driver)) for used in (first, second)]
    changed = evidence_file.differences(*decisions)
    for line in changed:
        printer.write(printer.safe(f"decided otherwise: {line}"))
    if not changed:
        printer.write("the decisions are the same")


def raw_lines(stream: BinaryIO, limit: int = LONGEST_LINE) -> Iterator[str]:
    """The lines of a stream of any bytes; of a longer line than `limit` bytes only the beginning."""
    while chunk := stream.readline(limit):
        whole = chunk.endswith(b"\n")
        yield chunk.rstrip(b"\r\n").decode("utf-8", "replace")
        while not whole:
            rest = stream.readline(limit)
            whole = not rest or rest.endswith(b"\n")


def _opened(file: Path) -> Any:
    import contextlib
    import sys

    return contextlib.nullcontext(sys.stdin.buffer) if str(file) == "-" else file.open("rb")


def _named(file: Path) -> Path | None:
    return None if str(file) == "-" else file


def _policy(file: Path | None) -> Any:
    from health import shipped
    from health.policy import yaml_text

    if file is None:
        return shipped.policy()
    try:
        return yaml_text.policy(file.read_text(encoding="utf-8"), shipped.policy_text())
    except (yaml_text.PolicyError, UnicodeDecodeError) as error:
        way_out = "compare it with what `clusterops health policy show` prints"
        raise errors.CommandError(f"{file}: {error}", way_out, errors.USAGE) from error


def _version(text: str | None) -> Any:
    from health.catalogue.driver import version

    found = version(text) if text is not None else None
    if text is not None and found is None:
        raise errors.CommandError(
            f"{text!r} is no driver version", "give it as 580.95.05 or R580", errors.USAGE
        )
    return found


def _verdict_on(file: Path, used: Any, driver: str | None) -> Any:
    from health import classify as classifying
    from health import evidence_file, shipped
    from health.verdict.node import judge_node

    with _opened(file) as stream:
        lines = list(raw_lines(stream, limit=1 << 24))
    if lines and evidence_file.is_evidence(lines[0]):
        return evidence_file.decide_again(_evidence(file, lines), shipped.catalogue(), used)
    judge = classifying.judge_for(shipped.catalogue(), _version(driver), used)
    return judge_node(classifying.folded(lines, judge, used))


def _evidence(file: Path, lines: list[str]) -> Any:
    from health import evidence_file

    try:
        return evidence_file.read(lines)
    except evidence_file.EvidenceError as error:
        way_out = "name a file that `clusterops health classify --save` wrote"
        raise errors.CommandError(f"{file}: {error}", way_out) from error


def _recorded(lines: Iterator[str], driver: str | None, used: Any, save: Path) -> Any:
    """The verdict on a log, with all that it was made from written to a file."""
    from msgspec.structs import replace

    from health import classify as classifying
    from health import evidence_file, shipped

    counts: dict[str, int] = {}
    events = list(classifying.events(lines, counts))
    now = max((event.at for event in events), default=0.0)
    header = evidence_file.Header(evidence_file.FORMAT, used, now, driver)
    recorded = evidence_file.Recorded(header, events, None)
    verdict = evidence_file.decide_again(recorded, shipped.catalogue())
    made = evidence_file.decision(verdict)
    with save.open("wb") as file:
        file.writelines(line + b"\n" for line in evidence_file.written(header, events, made))
    return replace(verdict, counts=dict(sorted({**counts, **verdict.counts}.items())))


def _print_lines(verdicts: Iterator[Any], output: LogFormat) -> None:
    import msgspec

    from clusterops.cli import output as printer

    if output is LogFormat.JSONL:
        import json

        for each in verdicts:
            printer.write(json.dumps(msgspec.to_builtins(each)))
        return
    rows = [
        [str(each.line), each.kind, str(each.code or "-"), each.gpu or "-", each.action, each.rule, each.why]
        for each in verdicts
    ]  # fmt: skip
    printer.write(printer.table(("LINE", "KIND", "CODE", "GPU", "ACTION", "RULE", "WHY"), rows))


def _print_verdict(verdict: Any, output: LogFormat) -> None:
    import json

    from clusterops.cli import output as printer
    from health import report

    if output is LogFormat.JSONL:
        for each in verdict.incidents:
            printer.write(json.dumps(report.incident(each)))
        return
    if verdict.incidents:
        printer.write(printer.table(report.COLUMNS, report.rows(verdict)))
    printer.write(printer.safe(report.summary(verdict)))
    printer.say(f"seen: {report.counted(verdict)}")
