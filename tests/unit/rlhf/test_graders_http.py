"""Graders over HTTP: signed both ways, limited in size and time, checked against the schema."""

import asyncio
import contextlib

import h11
import pytest
from support import rlhf_reward_functions as functions
from support.rlhf_samples import sample

from rlhf.graders import http_exchange, wire
from rlhf.graders.checking import answers_of
from rlhf.graders.functions import FunctionGrader
from rlhf.graders.http_grader import HttpGrader
from rlhf.graders.http_server import GraderServer
from rlhf.graders.protocol import BadAnswer
from rlhf.identity import Score
from rlhf.missing import Missing, Reason

KEY = b"sixteen bytes or more"


async def outcome(grader: HttpGrader, **changes) -> Score | Missing:
    (answer,) = await answers_of(grader, [sample(**changes)])
    return answer.outcome


async def test_samples_are_scored_over_one_connection() -> None:
    async with GraderServer(FunctionGrader(functions.in_parts, inline=True), KEY) as server:
        grader = HttpGrader(server.url, KEY, largest_batch=4)
        samples = [sample(number, response="x" * number, answer="xx") for number in range(4)]
        answers = await answers_of(grader, samples)
        assert [each.outcome.parts["length"] for each in answers] == [0.0, 1.0, 2.0, 3.0]
        assert [each.outcome.parts["right"] for each in answers] == [0.0, 0.0, 1.0, 0.0]
        assert (await outcome(grader, response="xx", answer="xx")).reward == 0.9
        assert len(grader._idle) == 1
        await grader.close()


async def test_a_kept_connection_that_the_server_closed_is_replaced() -> None:
    async with GraderServer(FunctionGrader(functions.length), KEY) as server:
        grader = HttpGrader(server.url, KEY)
        await outcome(grader)
        port = server.port
    async with GraderServer(FunctionGrader(functions.length), KEY, port=port):
        assert await outcome(grader, response="abc") == Score(3.0)
        await grader.close()


async def test_another_key_is_refused_by_the_server() -> None:
    async with GraderServer(FunctionGrader(functions.length), KEY) as server:
        grader = HttpGrader(server.url, b"another key of enough bytes")
        missing = await outcome(grader)
        assert missing.reason is Reason.GRADER_ERROR
        assert "status 401" in missing.detail
        await grader.close()


async def test_the_servers_failures_come_through_as_reasons() -> None:
    for function, reason in ((functions.raising, "GraderError"), (functions.refusing, "Refused")):
        async with GraderServer(FunctionGrader(function), KEY) as server:
            grader = HttpGrader(server.url, KEY)
            assert (await outcome(grader)).reason == reason
            await grader.close()


async def test_no_server_and_no_answer_are_told_apart() -> None:
    async with GraderServer(FunctionGrader(functions.length), KEY) as server:
        url = server.url
    assert (await outcome(HttpGrader(url, KEY))).reason is Reason.GRADER_ERROR

    async def forever(prompt: str, response: str) -> float:
        await asyncio.Event().wait()
        return 0.0

    async with GraderServer(FunctionGrader(forever), KEY) as server:
        grader = HttpGrader(server.url, KEY, timeout_seconds=0.05)
        assert (await outcome(grader)).reason is Reason.TIMED_OUT


class Lying:
    """A server that answers every request with the same bytes, signed or not."""

    def __init__(self, body: bytes, *, key: bytes | None = KEY, status: int = 200) -> None:
        self.body, self.key, self.status = body, key, status

    async def __aenter__(self) -> str:
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self.server.sockets[0].getsockname()[1]}/"

    async def __aexit__(self, *failure) -> None:
        self.server.close()
        await self.server.wait_closed()

    async def serve(self, reader, writer) -> None:
        connection = h11.Connection(h11.SERVER)
        request = await http_exchange.receive(connection, reader, 1 << 20)
        headers = [("content-length", str(len(self.body)))]
        if self.key is not None:
            theirs = request.header(wire.SIGNATURE_HEADER)
            headers.append(
                (wire.SIGNATURE_HEADER, wire.reply_signature(self.key, theirs, self.body))
            )
        head = h11.Response(status_code=self.status, headers=headers)
        # The client may have read enough.
        with contextlib.suppress(http_exchange.Disconnected):
            await http_exchange.send(connection, writer, head, self.body)
        writer.close()


ANSWER = wire.encode_reply([sample().answered(Score(1.0))])


@pytest.mark.parametrize(
    ("body", "options", "words"),
    [
        (ANSWER, {"key": None}, "not signed"),
        (ANSWER, {"key": b"some other key of theirs"}, "not signed"),
        (b"no json", {}, "does not have the form"),
        (b'{"answers": [{"seq": "x"}]}', {}, "does not have the form"),
        (wire.encode_reply([]), {}, "0 answers for 1"),
        (wire.encode_reply([sample().answered(Score(1.0))] * 2), {}, "2 answers for 1"),
        (wire.encode_reply([sample(1).answered(Score(1.0))]), {}, "answered for s1"),
        (wire.encode_reply([sample().answered(Score(float("nan")))]), {}, "neither or both"),
        (b"x" * (wire.MOST_BYTES + 1), {}, "too large"),
    ],
    ids=[
        "unsigned", "other key", "no json", "schema", "n-1", "n+1", "neighbour", "nan", "10 MB",
    ],
)  # fmt: skip
async def test_a_reply_that_breaks_the_rules_is_an_invalid_answer(body, options, words) -> None:
    async with Lying(body, **options) as url:
        grader = HttpGrader(url, KEY)
        missing = await outcome(grader)
        await grader.close()
        assert missing.reason is Reason.INVALID_ANSWER
        assert words in missing.detail


async def test_a_signed_reply_does_not_fit_another_request() -> None:
    body = wire.encode_request([sample()], "1")
    other = wire.encode_request([sample()], "2")
    first = wire.reply_signature(KEY, wire.request_signature(KEY, body), ANSWER)
    second = wire.reply_signature(KEY, wire.request_signature(KEY, other), ANSWER)
    assert first != second


async def test_a_request_that_is_too_large_or_no_request_is_refused_by_the_server() -> None:
    async with GraderServer(FunctionGrader(functions.length), KEY) as server:
        for body, status in ((b"x" * (wire.MOST_BYTES + 1), 413), (b"{}", 400)):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            connection = h11.Connection(h11.CLIENT)
            head = h11.Request(
                method="POST",
                target="/grade",
                headers=[
                    ("host", "x"),
                    ("content-length", str(len(body))),
                    (wire.SIGNATURE_HEADER, wire.request_signature(KEY, body)),
                ],
            )
            writer.write(connection.send(head))
            if status == 400:
                writer.write(connection.send(h11.Data(data=body)))
                writer.write(connection.send(h11.EndOfMessage()))
            reply = await http_exchange.receive(connection, reader, 1 << 20)
            assert reply.head.status_code == status
            writer.close()
            await writer.wait_closed()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://grader.example/", "without TLS"),
        ("http://10.0.0.1/", "without TLS"),
        ("ftp://127.0.0.1/", "no http"),
        ("nonsense", "no http"),
    ],
)
def test_samples_leave_this_machine_with_tls_alone(url, words) -> None:
    with pytest.raises(ValueError, match=words):
        HttpGrader(url, KEY)


def test_a_key_that_is_too_short_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 16"):
        HttpGrader("https://grader.example/", b"short")


def test_the_grader_hashes_the_tokens_it_was_given() -> None:
    """Tokens mixed up on the way give digests that fit no sample that was asked."""
    asked = sample(4)
    (arrived,) = wire.decode_request(wire.encode_request([asked], "n"))
    assert arrived.envelope == asked.envelope
    (mixed,) = wire.decode_request(
        wire.encode_request([asked], "n").replace(
            b'"responseIds":[4,2,3]', b'"responseIds":[4,3,2]'
        )
    )
    assert mixed.envelope != asked.envelope


@pytest.mark.parametrize("body", [b"", b"[]", b'{"version":2,"nonce":"","samples":[]}'])
def test_a_request_of_another_kind_or_version_is_refused(body) -> None:
    with pytest.raises(BadAnswer):
        wire.decode_request(body)
