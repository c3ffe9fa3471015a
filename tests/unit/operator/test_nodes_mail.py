"""Tickets as mail and as notifications: once, whole, over TLS, and without a secret in any error."""

import asyncio
import json
from email import policy
from email.parser import BytesParser
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.operator_http import LoopbackService, Quiet
from support.operator_smtp import MailReceiver, certificate

from clusterops.operator.tickets import letter
from clusterops.operator.tickets.mail import MailServer, MailTickets, Security
from clusterops.operator.tickets.notification import AppriseTickets
from clusterops.operator.tickets.port import Ticket, TicketError

# Apprise imports a module of the standard library that Python 3.13 does not have any more.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")
BUNDLE = {
    "node": "n1",
    "class": "xid-79",
    "incident": {"id": "xid-79-a", "openedAt": "2030-01-01T00:00:00Z", "message": "lost"},
    "gpus": [
        {"uuid": "GPU-1", "serial": "165", "slot": "module 3", "vbios": "96.0", "driver": "580.1"}
    ],
    "evidence": [
        {"source": "kmsg", "observedAt": "2030-01-01T00:00:00Z", "count": 3, "text": "Xid 79"}
    ],
    "tried": [{"rung": "reboot_node", "at": 5.0, "failed": True}],
}
TICKET = Ticket("gpu-0123456789abcdef", "n1: xid-79", BUNDLE)


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    return certificate(tmp_path_factory.mktemp("tls"))


def tickets(receiver, tls, security=Security.STARTTLS, **more) -> MailTickets:
    server = MailServer("localhost", receiver.port, security, ca_file=tls[0], **more)
    return MailTickets(
        server, "GPUs <gpu@example.org>", ["a@example.org", "b@example.org"], lambda: 5.0
    )


def test_a_letter_holds_the_board_the_chain_and_what_was_tried():
    text = letter.body(TICKET)
    for part in (
        "serial: 165",
        "slot: module 3",
        "vbios: 96.0",
        "driver: 580.1",
        "reboot_node failed",
    ):
        assert part in text
    assert "2030-01-01T00:00:00Z kmsg x3: Xid 79" in text
    assert letter.subject(TICKET) == "[gpu-0123456789abcdef] n1: xid-79"


values = st.recursive(
    st.text(max_size=20) | st.integers() | st.none(),
    lambda v: st.lists(v, max_size=2),
    max_leaves=4,
)


@given(st.text(max_size=80), values, st.text(max_size=80))
def test_any_text_in_the_evidence_makes_a_mail_and_no_header(title, value, line):
    evidence = [{"text": line, "observedAt": value}]
    bundle = {
        "node": value,
        "incident": {"id": line},
        "gpus": [{"uuid": value}],
        "evidence": evidence,
    }
    server = MailServer("localhost", 25)
    mail = MailTickets(server, "gpu@example.org", ["a@example.org"], lambda: 5.0)
    raw = mail.message(Ticket("gpu-1", title, bundle)).as_bytes()
    read = BytesParser(policy=policy.SMTP).parsebytes(raw)
    names = {name.lower() for name in read}
    assert names == {
        "from", "to", "subject", "date", "message-id", "auto-submitted", "x-clusterops-ticket",
        "mime-version", "content-type",
    }  # fmt: skip
    assert read["X-Clusterops-Ticket"] == "gpu-1"


@pytest.mark.parametrize("security", [Security.STARTTLS, Security.TLS])
async def test_a_mail_goes_over_tls_with_its_password_and_whole(tls, security):
    implicit = security is Security.TLS
    with MailReceiver(tls=tls, implicit=implicit, password=("gpu", "s3cret")) as receiver:
        mail = tickets(receiver, tls, security, username="gpu", password="s3cret")
        assert await mail.open(TICKET) == TICKET.key
    (raw,) = receiver.mails
    read = BytesParser(policy=policy.default).parsebytes(raw)
    assert read["Message-ID"] == "<gpu-0123456789abcdef@example.org>"
    assert read["Auto-Submitted"] == "auto-generated"
    (attached,) = read.iter_attachments()
    assert json.loads(attached.get_content())["evidence"] == BUNDLE["evidence"]
    assert "serial: 165" in read.get_body().get_content()
    assert [r.strip("<>") for r in receiver.recipients] == ["a@example.org", "b@example.org"]
    assert set(receiver.in_the_clear) <= {"EHLO", "STARTTLS"}


async def test_a_ticket_is_mailed_once_however_often_it_is_opened(tls):
    with MailReceiver(tls=tls) as receiver:
        mail = tickets(receiver, tls)
        await asyncio.gather(*(mail.open(TICKET) for _ in range(4)))
        await mail.open(TICKET)
    assert len(receiver.mails) == 1


async def test_a_server_that_is_not_who_it_should_be_gets_nothing(tls, tmp_path):
    with MailReceiver(tls=certificate(tmp_path)) as receiver:
        with pytest.raises(TicketError, match="certificate"):
            await tickets(receiver, tls).open(TICKET)
    assert receiver.mails == []


async def test_a_server_without_tls_gets_nothing(tls):
    with MailReceiver() as receiver:
        with pytest.raises(TicketError, match="STARTTLS"):
            await tickets(receiver, tls).open(TICKET)
    assert receiver.mails == []


async def test_a_refused_password_is_said_without_it(tls):
    with MailReceiver(tls=tls, password=("gpu", "right")) as receiver:
        mail = tickets(receiver, tls, username="gpu", password="wr0ng-s3cret")
        with pytest.raises(TicketError) as error:
            await mail.open(TICKET)
    assert "535" in str(error.value)
    assert "wr0ng-s3cret" not in str(error.value) + repr(error.value.__cause__) + repr(mail._server)


async def test_a_refused_mail_is_told_and_tried_again(tls):
    with MailReceiver(tls=tls, refuse="450 later") as receiver:
        mail = tickets(receiver, tls)
        with pytest.raises(TicketError, match="later"):
            await mail.open(TICKET)
        receiver._refuse = ""
        assert await mail.open(TICKET) == TICKET.key
    assert len(receiver.mails) == 1


def test_neither_evidence_nor_passwords_go_in_the_clear():
    with pytest.raises(ValueError, match="in the clear"):
        MailServer("mail.example.org", 25, Security.NONE)
    with pytest.raises(ValueError, match="without TLS"):
        MailServer("localhost", 25, Security.NONE, username="u", password="p")
    for addresses in ([], ["nobody"], ["a@example.org\nBcc: x@example.org"]):
        with pytest.raises(ValueError):
            MailTickets(MailServer("localhost", 25), "gpu@example.org", addresses, lambda: 1.0)


class Service(LoopbackService):
    """A service that Apprise speaks to, on loopback."""

    def __init__(self, status=200):
        self.told: list[dict[str, str]] = []
        service = self

        class Post(Quiet, BaseHTTPRequestHandler):
            def do_POST(self):
                service.told.append(json.loads(self.body()))
                self.send_response(status)
                self.end_headers()

        self.server = HTTPServer(("127.0.0.1", 0), Post)
        self.address = f"json://user:s3cret-pass@127.0.0.1:{self.server.server_port}/x"


async def test_every_service_is_notified_once_with_the_evidence():
    pytest.importorskip("apprise")
    with Service() as one, Service() as two:
        notified = AppriseTickets([one.address, two.address])
        await asyncio.gather(*(notified.open(TICKET) for _ in range(3)))
    assert [len(each.told) for each in (one, two)] == [1, 1]
    assert one.told[0]["title"] == letter.subject(TICKET)
    assert "serial: 165" in one.told[0]["message"]


async def test_a_service_that_refuses_is_told_without_its_address():
    pytest.importorskip("apprise")
    with Service(status=500) as service:
        notified = AppriseTickets([service.address])
        with pytest.raises(TicketError) as error:
            await notified.open(TICKET)
    assert "s3cret-pass" not in str(error.value) + repr(notified)


def test_an_address_that_apprise_does_not_know_is_refused_without_showing_it():
    pytest.importorskip("apprise")
    with pytest.raises(ValueError) as error:
        AppriseTickets(["nonsense://s3cret-pass"])
    assert "s3cret-pass" not in str(error.value)
    with pytest.raises(ValueError, match="address"):
        AppriseTickets([])
