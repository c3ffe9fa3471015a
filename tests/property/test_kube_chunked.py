"""Chunked bodies: cut anywhere they give the same payload; what is no chunked body is refused."""

from itertools import pairwise

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterops.kube.chunked import ChunkedDecoder, ChunkError

PAYLOADS = st.lists(st.binary(min_size=1, max_size=60), max_size=8)
CUTS = st.lists(st.integers(0, 700), max_size=12)


def framed(payloads, extension=b"", trailer=b""):
    chunks = b"".join(b"%x%s\r\n%s\r\n" % (len(p), extension, p) for p in payloads)
    return chunks + b"0\r\n" + trailer + b"\r\n"


def decoded(data, cuts):
    decoder = ChunkedDecoder()
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    payload = b"".join(decoder.feed(data[start:end]) for start, end in pairwise(edges))
    return payload, decoder.finished


@given(
    payloads=PAYLOADS,
    cuts=CUTS,
    extension=st.sampled_from([b"", b";a=b", b" ; x"]),
    trailer=st.sampled_from([b"", b"digest: x\r\n"]),
)
def test_cut_anywhere_the_payload_is_the_same(payloads, cuts, extension, trailer):
    data = framed(payloads, extension, trailer)
    assert decoded(data, cuts) == (b"".join(payloads), True)
    assert decoded(data + b"next answer", cuts)[0] == b"".join(payloads)


@given(payloads=PAYLOADS, cuts=CUTS, end=st.integers(0, 700))
def test_a_body_without_its_end_is_never_finished_and_gives_only_what_came(payloads, cuts, end):
    data = framed(payloads)
    whole = data[: min(end, len(data) - 1)]
    payload, finished = decoded(whole, cuts)
    assert not finished
    assert b"".join(payloads).startswith(payload)


@given(data=st.binary(max_size=40))
def test_it_refuses_what_h11_refuses_and_agrees_otherwise(data):
    connection = h11.Connection(h11.CLIENT)
    connection.send(h11.Request(method="GET", target="/", headers=[("host", "x")]))
    connection.send(h11.EndOfMessage())
    connection.receive_data(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + data)
    expected, ended = b"", False
    try:
        while (event := connection.next_event()) is not h11.NEED_DATA:
            if isinstance(event, h11.Data):
                expected += bytes(event.data)
            if isinstance(event, h11.EndOfMessage):
                ended = True
                break
    except h11.RemoteProtocolError:
        return
    assert decoded(data, []) == (expected, ended)


@pytest.mark.parametrize(
    "data",
    [b"zz\r\n", b"\r\n", b"-1\r\n", b"0x5\r\nhello\r\n", b"1_0\r\n", b"2\r\nabc\r\n", b"1" * 9000],
)
def test_no_chunk_is_an_error(data):
    with pytest.raises(ChunkError):
        ChunkedDecoder().feed(data)
