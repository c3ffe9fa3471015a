"""What an operator may do to nodes, as a file says it, and the parts that follow from it.

enabled: true                     # without it every order is only said (dry run)
programs:                         # argument vectors; no shell ever sees them
  reset_gpu: [/opt/site/reset, "{node}", "{gpus}"]
  reboot_node: [ipmitool, -H, "{node}-bmc", chassis, power, cycle]
annotations: [reset_gpu]          # rungs that a site's own agent carries out: its wish on the Node
tickets: {folder: /var/lib/tickets}
# or     {webhook: https://tickets.example.org, webhookSecretFile: /run/secrets/webhook}
# or     {mail: {host: mail.example.org, sender: gpu@example.org, recipients: [ops@example.org]}}
# or     {appriseFile: /run/secrets/services}    # one address a line
budgets: {shareAtOnce: 0.1, perRack: 1}
ladder: {noticeSeconds: 120, rebootSeconds: 1200}
verification: {image: registry.example.org/clusterops:1, namespace: clusterops-health}
"""

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import Field, StrictBool, StrictFloat, StrictInt, StrictStr, ValidationError

from clusterops.api.node_health import Rung
from clusterops.api.wire import WireModel
from clusterops.core.remediation_budget import Budgets
from clusterops.core.remediation_ladder import Ladder
from clusterops.operator.executor_annotation import AnnotationOrders, ByRung
from clusterops.operator.nodes import RemediationConfig
from clusterops.operator.nodes_executor import HOLES, DryRun, Executor, Programs
from clusterops.operator.nodes_verification import VerificationTemplate
from clusterops.operator.tickets.file import FileTickets
from clusterops.operator.tickets.mail import MailServer, MailTickets, Security
from clusterops.operator.tickets.notification import AppriseTickets
from clusterops.operator.tickets.port import NoTickets, Tickets
from clusterops.operator.tickets.webhook import WebhookTickets

Share = Annotated[StrictFloat | StrictInt, Field(ge=0, le=1)]
Count = Annotated[StrictInt, Field(ge=1)]
Seconds = Annotated[StrictInt, Field(ge=0)]
Word = Annotated[StrictStr, Field(min_length=1)]


class RemediationRefused(Exception):
    """The settings cannot work; the text says where and what to do."""


class MailSettings(WireModel):
    """A mail for each ticket."""

    host: Word
    port: Annotated[StrictInt, Field(ge=1, le=65_535)] = 587
    security: Security = Security.STARTTLS
    username: StrictStr = ""
    password_file: Word | None = None
    ca_file: Word | None = None
    sender: Word
    recipients: Annotated[tuple[Word, ...], Field(min_length=1)]


class TicketSettings(WireModel):
    """Where tickets go: one way, or none."""

    folder: Word | None = None
    """A file for each ticket."""
    webhook: Word | None = None
    """A POST for each ticket to this URL, signed with the secret."""
    webhook_secret_file: Word | None = None
    mail: MailSettings | None = None
    apprise_file: Word | None = None
    """A notification for each ticket; the file holds addresses, and with them their secrets."""


class BudgetSettings(WireModel):
    """Limits of what is done at once; what is not named stays as shipped."""

    share_at_once: Share | None = None
    per_rack: Count | None = None
    share_per_cause: Share | None = None
    per_window: Count | None = None
    window_seconds: Count | None = None
    per_node: Count | None = None
    per_node_seconds: Count | None = None


class LadderSettings(WireModel):
    """How long each step may take; what is not named stays as shipped."""

    notice_seconds: Seconds | None = None
    uncontained: tuple[Word, ...] | None = None
    drain_slack_seconds: Seconds | None = None
    reset_seconds: Count | None = None
    reboot_seconds: Count | None = None
    verify_seconds: Count | None = None


class VerificationSettings(WireModel):
    """The pod that proves a repaired node healthy."""

    namespace: Word | None = None
    image: Word | None = None
    command: Annotated[tuple[Word, ...], Field(min_length=1)] | None = None
    deadline_seconds: Count | None = None
    history: Word | None = None
    """Folder on each node for the figures of its checks, which later ones are compared with."""
    simulated_gpus: Word | None = None
    """On nodes with simulated GPUs: the file that says how they are, with {node} in it."""


class RemediationSettings(WireModel):
    """All of it."""

    enabled: StrictBool = False
    programs: dict[Rung, Annotated[tuple[Word, ...], Field(min_length=1)]] = Field(
        default_factory=dict
    )
    annotations: tuple[Rung, ...] = ()
    """Rungs that an agent of the site's carries out: the wish is an annotation on the Node."""
    tickets: TicketSettings = TicketSettings()
    budgets: BudgetSettings = BudgetSettings()
    ladder: LadderSettings = LadderSettings()
    verification: VerificationSettings = VerificationSettings()


def read(path: Path) -> dict[str, Any]:
    """The file as plain values. Raises RemediationRefused."""
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise RemediationRefused(f"cannot read {path}: {error}") from error
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise RemediationRefused(f"{path} must hold settings by name")
    return found


def config(
    told: Mapping[str, Any], *, namespace: str, now: Callable[[], float]
) -> RemediationConfig:
    """The parts that the settings ask for. `now` gives seconds since 1970. Raises RemediationRefused."""
    try:
        settings = RemediationSettings.from_wire(dict(told))
    except ValidationError as error:
        faults = "; ".join(
            f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()
        )
        raise RemediationRefused(f"the remediation settings are wrong: {faults}") from error
    return RemediationConfig(
        ladder=_over(Ladder(), settings.ladder),
        budgets=_over(Budgets(), settings.budgets),
        template=_over(VerificationTemplate(), settings.verification),
        executor=_executor(settings, now),
        tickets=_tickets(settings.tickets, now),
        namespace=namespace,
    )


def _over(shipped: Any, settings: WireModel) -> Any:
    """The shipped values with those in their place that the settings name."""
    named = {each.name: getattr(settings, each.name, None) for each in fields(shipped)}
    return replace(shipped, **{name: value for name, value in named.items() if value is not None})


def _executor(settings: RemediationSettings, now: Callable[[], float]) -> Executor:
    for rung in (*settings.programs, *settings.annotations):
        if rung not in (Rung.RESET_GPU, Rung.REBOOT_NODE):
            raise RemediationRefused(f"nothing is carried out for {rung}: it needs no program")
        if rung in settings.programs and rung in settings.annotations:
            raise RemediationRefused(f"{rung} goes to a program or to an agent, not to both")
    for rung, vector in settings.programs.items():
        if not any(hole in argument for hole in HOLES for argument in vector):
            raise RemediationRefused(
                f"the program for {rung} names no node: put {{node}} into one of its arguments"
            )
    if not settings.enabled:
        return DryRun()
    programs = Programs(settings.programs)
    if not settings.annotations:
        return programs
    return ByRung(programs, AnnotationOrders(settings.annotations, now))


def _tickets(settings: TicketSettings, now: Callable[[], float]) -> Tickets:
    ways = (settings.folder, settings.webhook, settings.mail, settings.apprise_file)
    if sum(way is not None for way in ways) > 1:
        raise RemediationRefused(
            "tickets go one way: name a folder, a webhook, mail or appriseFile"
        )
    if settings.folder is not None:
        return FileTickets(Path(settings.folder))
    try:
        if settings.webhook is not None:
            return _webhook(settings, now)
        if settings.mail is not None:
            return _mail(settings.mail, now)
        if settings.apprise_file is not None:
            lines = _secret(settings.apprise_file).splitlines()
            return AppriseTickets([line.strip() for line in lines if line.strip()])
    except (OSError, ValueError) as error:
        raise RemediationRefused(f"the way for tickets cannot be used: {error}") from error
    return NoTickets()


def _webhook(settings: TicketSettings, now: Callable[[], float]) -> Tickets:
    if settings.webhook_secret_file is None:
        raise RemediationRefused("a webhook needs webhookSecretFile: its requests are signed")
    secret = _secret(settings.webhook_secret_file).encode()
    return WebhookTickets(settings.webhook or "", secret, now)


def _mail(settings: MailSettings, now: Callable[[], float]) -> Tickets:
    password = _secret(settings.password_file) if settings.password_file is not None else ""
    server = MailServer(
        settings.host,
        settings.port,
        settings.security,
        settings.username,
        password,
        Path(settings.ca_file) if settings.ca_file is not None else None,
    )
    return MailTickets(server, settings.sender, settings.recipients, now)


def _secret(file: str) -> str:
    return Path(file).read_text(encoding="utf-8").strip()
