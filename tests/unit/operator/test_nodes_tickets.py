"""Tickets: one for one fault, signed, whole, and without secrets."""

import asyncio
import hashlib
import hmac
import json
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.operator_http import LoopbackService, Quiet

from clusterops.api.node_health import Rung
from clusterops.core.remediation_actions import OpenTicket
from clusterops.core.remediation_budget import Attempt
from clusterops.operator.tickets.file import FileTickets
from clusterops.operator.tickets.port import MAX_TEXT, TicketError, redacted, ticket_of
from clusterops.operator.tickets.webhook import WebhookTickets

SECRET = b"sixteen bytes at least"
WANTED = OpenTicket("xid-79-a", "xid-79", ("GPU-1",))
TRIED = (
    Attempt("n1", "xid-79-a", "xid-79", Rung.REBOOT_NODE, 5.0, failed=True),
    Attempt("n1", "another", "xid-13", Rung.RESET_GPU, 1.0),
)


BOARD = {
    "uuid": "GPU-1", "busId": "0000:1b:00.0", "serial": "165", "slot": "module 3",
    "vbios": "96.00.74.00.01", "driver": "580.65.06",
}  # fmt: skip


def health(text="NVRM: Xid (PCI:0000:1b:00): 79"):
    evidence = [{"source": "kmsg", "observedAt": "2030-01-01T00:00:00Z", "code": 79, "text": text}]
    return {
        "metadata": {"name": "n1"},
        "status": {
            "gpus": [
                {**BOARD, "verdict": "RebootNode", "evidence": evidence},
                {"uuid": "GPU-2", "serial": "166", "verdict": "Healthy", "evidence": []},
            ],
            "incidents": [{"id": "xid-79-a", "verdict": "RebootNode", "message": text}],
        },
    }


def test_a_ticket_holds_the_board_the_chain_and_what_was_tried():
    bundle = ticket_of(health(), WANTED, TRIED).bundle
    assert bundle["gpus"] == [{**BOARD, "verdict": "RebootNode"}]
    assert bundle["evidence"][0]["code"] == 79
    assert bundle["incident"]["verdict"] == "RebootNode"
    assert bundle["tried"] == [{"rung": "reboot_node", "at": 5.0, "failed": True}]


def test_the_key_is_that_of_node_gpus_class_and_incident_alone():
    key = ticket_of(health(), WANTED, ()).key
    assert ticket_of(health("other evidence"), WANTED, TRIED).key == key
    for other in (
        OpenTicket("xid-79-b", "xid-79", ("GPU-1",)),
        OpenTicket("xid-79-a", "xid-64", ("GPU-1",)),
        OpenTicket("xid-79-a", "xid-79", ("GPU-2",)),
    ):
        assert ticket_of(health(), other, ()).key != key


@pytest.mark.parametrize(
    "secret",
    [
        "Authorization: Bearer abcdef123456",
        "password=hunter2hunter2",
        'api_key: "0123456789abcdef"',
        "token eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.sig",
        "https://user:s3cretpass@host/path",
        "key AKIA0123456789ABCDEF",
        'password="two words abcdef123456"',
        "?access_token=abcdef123456&x=1",
        "-----BEGIN RSA PRIVATE KEY-----\nabcdef123456\n-----END RSA PRIVATE KEY-----",
    ],
)
def test_secrets_in_the_evidence_are_blacked_out(secret):
    text = json.dumps(ticket_of(health(f"line {secret} end"), WANTED, ()).bundle)
    assert "[redacted]" in text
    for part in ("abcdef123456", "hunter2", "0123456789", "eyJhbGci", "s3cretpass"):
        assert part not in text
    assert "line " in text


ALPHABET = "abcdefghijkmnpqrstuvwxyzABCDEFGH0123456789"
SECRETS = st.text(ALPHABET, min_size=12, max_size=60)
FORMS = [
    "Authorization: Bearer {}", "authorization=Basic {}", "token={}", "TOKEN: {}", "hf_token = '{}'",
    '"client_secret": "{}"', "passwd:{}", "password={};", "my-api-key={}", "AWS_SECRET_ACCESS_KEY={}",
    "https://robot:{}@git.example.org/x", "postgres://:{}@db/x", "ghp_{}", "github_pat_{}", "glpat-{}",
    "sk-{}", "hf_{}", "xoxb-{}", "AKIA{}", "eyJhbGciOiJIUzI1NiJ9.{}.sig", "Set-Cookie: session={}",
    "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----", "?access_token={}&next=1",
]  # fmt: skip
WORDS = st.text("NVRM: Xid (PCI:0000:1b:00): 79, pid=7", max_size=60)


@given(st.sampled_from(FORMS), SECRETS, WORDS, WORDS)
def test_no_secret_of_a_known_form_leaves_the_site_wherever_it_stands(form, secret, before, after):
    assume(secret not in before + after)
    text = f"{before} {form.format(secret)} {after}"
    found = redacted({"text": text, "rows": [{"line": text}, text]})
    assert secret not in json.dumps(found)
    assert "[redacted]" in found["text"]
    assert found["text"].endswith(after[-3:]), "and what is no secret stays"


@given(st.sampled_from(["token", "Password", "webhook_secret", "api-key"]), SECRETS)
def test_what_stands_under_the_name_of_a_secret_is_one(name, secret):
    assert redacted({name: secret, "note": "x"}) == {name: "[redacted]", "note": "x"}


@given(st.text(max_size=3000))
def test_the_line_of_a_fault_is_redacted_in_bounded_time_and_length(text):
    once = redacted(text)
    assert len(once) <= MAX_TEXT
    assert redacted(once) == once


@given(
    st.recursive(
        st.text() | st.integers() | st.none(), lambda v: st.lists(v) | st.dictionaries(st.text(), v)
    )
)
def test_any_value_can_be_redacted_and_twice_is_the_same(value):
    once = redacted(value)
    json.dumps(once)
    assert redacted(once) == once


async def test_a_file_is_written_once_and_whole(tmp_path):
    tickets = FileTickets(tmp_path / "tickets")
    first = ticket_of(health(), WANTED, ())
    names = await asyncio.gather(*(tickets.open(first) for _ in range(5)))
    assert set(names) == {f"{first.key}.json"}
    assert [p.name for p in (tmp_path / "tickets").iterdir()] == [names[0]]
    path = tmp_path / "tickets" / names[0]
    assert json.loads(path.read_text())["node"] == "n1"
    assert path.stat().st_mode & 0o077 == 0
    await tickets.open(ticket_of(health("later evidence"), WANTED, ()))
    assert "later evidence" not in path.read_text()


async def test_a_folder_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(TicketError, match="cannot write"):
        await FileTickets(tmp_path / "file" / "x").open(ticket_of(health(), WANTED, ()))


class Receiver(LoopbackService):
    """A ticket system on loopback."""

    def __init__(self, status=201, answer=b'{"id": "CASE-7"}'):
        self.requests: list[tuple[dict[str, str], bytes]] = []
        receiver = self

        class Post(Quiet, BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.body()
                receiver.requests.append((dict(self.headers), body))
                self.send_response(status)
                self.end_headers()
                self.wfile.write(answer)

        self.server = HTTPServer(("127.0.0.1", 0), Post)
        self.url = f"http://127.0.0.1:{self.server.server_port}/tickets?site=a"


async def test_a_webhook_is_signed_over_time_and_body_with_its_key_against_doubles():
    ticket = ticket_of(health(), WANTED, ())
    with Receiver() as receiver:
        number = await WebhookTickets(receiver.url, SECRET, lambda: 1234.5).open(ticket)
    ((headers, body),) = receiver.requests
    assert number == "CASE-7"
    assert headers["Idempotency-Key"] == ticket.key
    signed = hmac.new(SECRET, b"1234." + body, hashlib.sha256).hexdigest()
    assert headers["X-Clusterops-Signature"] == f"sha256={signed}"
    assert json.loads(body)["class"] == "xid-79"


@pytest.mark.parametrize("answer", [b"", b"thanks", b'{"id": null}', b"[" * 5000, b'{"id": true}'])
async def test_an_answer_without_a_number_leaves_the_key(answer):
    ticket = ticket_of(health(), WANTED, ())
    with Receiver(answer=answer) as receiver:
        assert await WebhookTickets(receiver.url, SECRET, lambda: 1.0).open(ticket) == ticket.key


async def test_a_refusal_or_silence_is_told_and_can_be_tried_again():
    ticket = ticket_of(health(), WANTED, ())
    with Receiver(status=500) as receiver:
        hook = WebhookTickets(receiver.url, SECRET, lambda: 1.0)
        with pytest.raises(TicketError, match="HTTP 500"):
            await hook.open(ticket)
    with pytest.raises(TicketError, match="does not take"):
        await hook.open(ticket)


@pytest.mark.parametrize("url", ["http://example.com/x", "ftp://127.0.0.1/", "nonsense", ""])
def test_evidence_is_not_sent_in_the_clear(url):
    with pytest.raises(ValueError):
        WebhookTickets(url, SECRET, lambda: 1.0)
    with pytest.raises(ValueError, match="16 bytes"):
        WebhookTickets("https://example.com", b"short", lambda: 1.0)
