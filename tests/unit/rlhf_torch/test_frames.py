"""Messages between processes: whole or not at all, and the end of the other side is told as such."""

import asyncio
import os
import socket
import struct

import msgspec
import pytest

from rlhf import messages
from rlhf.frames import AsyncFrames, Frames, PeerGone


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    yield ours, theirs
    ours.close()
    theirs.close()


def test_messages_of_any_size_come_out_as_they_went_in(pair):
    left, right = (Frames(link, messages.FromTrainer) for link in pair)
    sent = [messages.Take(3.5), messages.Trained(7), messages.Compact(2), messages.Stop()]
    for message in sent:
        left.send(message)
    assert [right.receive() for _ in sent] == sent


async def test_a_large_message_crosses_between_a_loop_and_a_thread(pair):
    request = messages.Generate(3, [messages.Request(n, list(range(200)), n) for n in range(2000)])
    incoming = await AsyncFrames.over(pair[0], messages.Generate)
    sending = asyncio.to_thread(Frames(pair[1], messages.Generate).send, request)
    received, _ = await asyncio.gather(incoming.receive(), sending)
    assert received == request
    incoming.close()


def test_waiting_says_whether_something_came(pair):
    left, right = (Frames(link, messages.FromTrainer) for link in pair)
    assert not right.wait(0.0)
    left.send(messages.Stop())
    assert right.wait(5.0)


def test_a_closed_end_is_the_end_of_the_other_process(pair):
    left, right = (Frames(link, messages.FromTrainer) for link in pair)
    left.close()
    assert right.wait(5.0)
    with pytest.raises(PeerGone):
        right.receive()
    with pytest.raises(PeerGone):
        send_until_refused(right)


def send_until_refused(frames):
    for _ in range(100):
        frames.send(messages.Take(1.0))


def test_half_a_message_is_no_message(pair):
    left, right = pair
    left.sendall(struct.pack(">I", 100) + b"only some")
    left.close()
    with pytest.raises(PeerGone):
        Frames(right, messages.FromTrainer).receive()


async def test_half_a_message_in_a_loop_is_no_message_either(pair):
    left, right = pair
    frames = await AsyncFrames.over(right, messages.FromTrainer)
    left.sendall(struct.pack(">I", 100) + b"only some")
    left.close()
    with pytest.raises(PeerGone):
        await frames.receive()
    frames.close()


def test_an_absurd_length_is_refused_before_it_is_read(pair):
    left, right = pair
    left.sendall(struct.pack(">I", 2**32 - 1))
    with pytest.raises(PeerGone, match="no message"):
        Frames(right, messages.FromTrainer).receive()


def test_what_is_no_message_is_refused(pair):
    left, right = pair
    body = os.urandom(20)
    left.sendall(struct.pack(">I", len(body)) + body)
    with pytest.raises(msgspec.MsgspecError):
        Frames(right, messages.FromTrainer).receive()
