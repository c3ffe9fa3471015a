"""The operator's settings about nodes: what they allow, and what is refused before anything runs."""

import warnings
from pathlib import Path

import pytest

from clusterops.api.node_health import Rung
from clusterops.cli import remediation_options
from clusterops.cli.errors import CommandError
from clusterops.core.remediation_budget import Budgets
from clusterops.core.remediation_ladder import Ladder
from clusterops.kube.client import Client
from clusterops.operator import nodes_config
from clusterops.operator.executor_annotation import through
from clusterops.operator.nodes_config import RemediationRefused
from clusterops.operator.nodes_executor import DryRun, Programs
from clusterops.operator.tickets.file import FileTickets
from clusterops.operator.tickets.mail import MailTickets
from clusterops.operator.tickets.notification import AppriseTickets
from clusterops.operator.tickets.port import NoTickets
from clusterops.operator.tickets.webhook import WebhookTickets

REBOOT = ["ipmi", "{node}"]


def config(**told):
    return nodes_config.config(told, namespace="ns", now=lambda: 0.0)


def test_without_a_word_nothing_is_carried_out_and_all_is_as_shipped():
    made = config()
    assert isinstance(made.executor, DryRun)
    assert isinstance(made.tickets, NoTickets)
    assert (made.budgets, made.ladder, made.namespace) == (Budgets(), Ladder(), "ns")


def test_programs_without_enabled_are_only_said():
    assert isinstance(config(programs={"reboot_node": REBOOT}).executor, DryRun)
    made = config(enabled=True, programs={"reboot_node": REBOOT})
    assert isinstance(made.executor, Programs)
    assert made.executor.can(Rung.REBOOT_NODE)
    assert not made.executor.can(Rung.RESET_GPU)


def test_what_is_named_takes_the_place_of_what_is_shipped_and_nothing_else_does():
    made = config(
        budgets={"shareAtOnce": 0.5},
        ladder={"noticeSeconds": 30, "uncontained": ["xid-95"]},
        verification={"image": "registry.example.org/x:1", "namespace": "v"},
    )
    assert made.budgets == Budgets(share_at_once=0.5)
    assert made.ladder == Ladder(notice_seconds=30, uncontained=("xid-95",))
    assert (made.template.image, made.template.namespace) == ("registry.example.org/x:1", "v")


def test_tickets_go_to_a_folder_or_signed_to_a_webhook(tmp_path):
    assert isinstance(config(tickets={"folder": str(tmp_path)}).tickets, FileTickets)
    secret = tmp_path / "secret"
    secret.write_text("0123456789abcdef\n")
    hook = {"webhook": "https://tickets.example.org", "webhookSecretFile": str(secret)}
    assert isinstance(config(tickets=hook).tickets, WebhookTickets)


def test_rungs_go_to_programs_and_to_an_agent_of_the_sites():
    told = {"programs": {"reboot_node": REBOOT}, "annotations": ["reset_gpu"]}
    assert isinstance(config(**told).executor, DryRun)
    made = config(enabled=True, **told).executor
    assert made.can(Rung.REBOOT_NODE)
    assert not made.can(Rung.RESET_GPU), "there is no connection yet"
    connected = through(made, Client(None))
    assert connected.can(Rung.RESET_GPU)
    assert connected.can(Rung.REBOOT_NODE)


def test_tickets_go_by_mail_or_to_the_services_of_a_file(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("s3cret-pass\n")
    mail = {
        "host": "mail.example.org",
        "sender": "gpu@example.org",
        "recipients": ["a@example.org"],
    }
    mail |= {"username": "gpu", "passwordFile": str(secret)}
    made = config(tickets={"mail": mail}).tickets
    assert isinstance(made, MailTickets)
    assert made._server.password == "s3cret-pass"
    services = tmp_path / "services"
    services.write_text("json://127.0.0.1:1/x\n\n")
    pytest.importorskip("apprise")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of Apprise's own imports
        assert isinstance(config(tickets={"appriseFile": str(services)}).tickets, AppriseTickets)


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"enable": True}, "enable"),
        ({"enabled": "yes"}, "enabled"),
        ({"programs": {"reboot": REBOOT}}, "programs.reboot"),
        ({"programs": {"reboot_node": []}}, "programs.reboot_node"),
        ({"programs": {"reboot_node": "ipmi {node}"}}, "programs.reboot_node"),
        ({"programs": {"reboot_node": ["ipmi", "all"]}}, "put {node} into"),
        ({"programs": {"hardware_ticket": ["x", "{node}"]}}, "needs no program"),
        ({"budgets": {"shareAtOnce": 7}}, "budgets.shareAtOnce"),
        ({"budgets": {"perRack": 0}}, "budgets.perRack"),
        ({"ladder": {"noticeSeconds": -1}}, "ladder.noticeSeconds"),
        ({"tickets": {"folder": "/x", "webhook": "https://x.example.org"}}, "one way"),
        ({"tickets": {"webhook": "https://x.example.org"}}, "webhookSecretFile"),
        (
            {"tickets": {"webhook": "https://x.example.org", "webhookSecretFile": "/nowhere"}},
            "cannot be used",
        ),
        ({"annotations": ["hardware_ticket"]}, "needs no program"),
        (
            {"annotations": ["reboot_node"], "programs": {"reboot_node": REBOOT}},
            "not to both",
        ),
        ({"tickets": {"folder": "/x", "appriseFile": "/y"}}, "one way"),
        ({"tickets": {"appriseFile": "/nowhere"}}, "cannot be used"),
        (
            {
                "tickets": {
                    "mail": {
                        "host": "mail.example.org",
                        "security": "none",
                        "sender": "gpu@example.org",
                        "recipients": ["a@example.org"],
                    }
                }
            },
            "in the clear",
        ),
    ],
)
def test_what_cannot_work_is_refused_with_its_place(told, words):
    with pytest.raises(RemediationRefused) as refused:
        config(**told)
    assert words in str(refused.value)


@pytest.mark.parametrize("text", ["- a", "a: [", "\x00"])
def test_a_file_that_holds_no_settings_is_refused(tmp_path, text):
    (tmp_path / "r.yaml").write_text(text)
    with pytest.raises(RemediationRefused):
        nodes_config.read(tmp_path / "r.yaml")
    with pytest.raises(RemediationRefused):
        nodes_config.read(tmp_path / "nothing.yaml")


def options(file=None, remedy=None, programs=(), tickets=None, budgets=()):
    return remediation_options.config(file, remedy, programs, tickets, budgets, "ns")


def test_options_are_laid_over_the_file(tmp_path):
    file = tmp_path / "r.yaml"
    file.write_text("enabled: true\nbudgets: {perRack: 2}\nprograms: {reset_gpu: [r, '{gpus}']}\n")
    made = options(file)
    assert isinstance(made.executor, Programs)
    assert isinstance(options(file, remedy=False).executor, DryRun)
    made = options(file, None, ['reboot_node=["ipmi", "{node}"]'], Path("/t"), ["shareAtOnce=0.2"])
    assert isinstance(made.executor, Programs)
    assert all(made.executor.can(rung) for rung in (Rung.RESET_GPU, Rung.REBOOT_NODE))
    assert (made.budgets.per_rack, made.budgets.share_at_once) == (2, 0.2)
    assert isinstance(made.tickets, FileTickets)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"programs": ["reboot_node"]}, "NAME=VALUE"),
        ({"programs": ["reboot_node=ipmi {node}"]}, "cannot be read"),
        ({"budgets": ["perRack=many"]}, "cannot be read"),
        ({"budgets": ["perrack=1"]}, "budgets.perrack"),
    ],
)
def test_options_that_cannot_be_read_say_so(given, words):
    with pytest.raises(CommandError) as refused:
        options(**given)
    assert words in str(refused.value)
