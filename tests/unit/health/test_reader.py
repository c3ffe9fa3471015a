"""Reader and daemon over their socket: restarts of either lose and double nothing."""

import asyncio
import contextlib
import os
import stat

import pytest
from support.health_kmsg import FakeKmsg
from support.health_tracing import FakeTracing, printed

from health import reader, record_link, trace_source
from health.kmsg import SourceUnusable
from health.reader import ReaderConfig
from health.record_link import LinkError, Listener, Sent

XID = "NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus."


class Daemon:
    """The daemon's side: keeps what it takes."""

    def __init__(self, path, boot="", after=None):
        self.sent: list[Sent] = []
        self.position = (boot, after)
        self.listener = Listener(path, lambda: self.position, self._take)

    async def _take(self, sent: Sent) -> None:
        self.sent.append(sent)
        if sent.batch.up_to is not None:
            self.position = (sent.boot, sent.batch.up_to)

    @property
    def sequences(self):
        return [record.sequence for sent in self.sent for record in sent.batch.records]

    @contextlib.asynccontextmanager
    async def listening(self):
        task = asyncio.create_task(self.listener.run())
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def until(self, condition, what):
        try:
            async with asyncio.timeout(30):
                while not condition():  # noqa: ASYNC110 - the socket's other end has no event
                    await asyncio.sleep(0.01)
        except TimeoutError:
            pytest.fail(f"waited for {what}; there was {self.sent}")


@contextlib.asynccontextmanager
async def reading(config):
    stop = asyncio.Event()
    task = asyncio.create_task(reader.serve(config, stop))
    try:
        yield task
    finally:
        stop.set()
        async with asyncio.timeout(20):
            await asyncio.gather(task, return_exceptions=True)


async def test_records_reach_the_daemon_and_restarts_lose_and_double_none(tmp_path):
    log, path = FakeKmsg(tmp_path / "kmsg"), tmp_path / "socket"
    config = ReaderConfig(path, log.path, "b1")
    log.say(XID)
    first = Daemon(path)
    async with reading(config):
        async with first.listening():
            await first.until(lambda: first.sequences == [0], "the first record")
            log.say("usb 1-1: new device")
            log.say(XID)
            await first.until(lambda: first.sequences == [0, 2], "the second")
        log.say(XID)
        second = Daemon(path, *first.position)
        async with second.listening():
            await second.until(lambda: second.sequences == [3], "what came meanwhile")
    third = Daemon(path, *second.position)
    log.say(XID)
    async with third.listening(), reading(config):
        await third.until(lambda: third.sequences == [4], "what came while no reader ran")
    assert sum(sent.batch.lost for sent in first.sent + second.sent + third.sent) == 0


async def test_trace_events_go_beside_the_log_and_move_no_position(tmp_path, monkeypatch):
    monkeypatch.setattr(trace_source, "SETTLE_SECONDS", 0.05)
    tracing = FakeTracing(tmp_path / "tracing")
    tracing.load_driver()
    log, path = FakeKmsg(tmp_path / "kmsg"), tmp_path / "socket"
    daemon = Daemon(path)
    config = ReaderConfig(path, log.path, "b1", tracing.path)
    async with daemon.listening(), reading(config):
        await daemon.until(lambda: any(s.traced is not None for s in daemon.sent), "the beginning")
        tracing.say(printed("nvidia_dev_xid", "Xid (PCI:0000:1b:00.0): 79, lost"))
        await daemon.until(lambda: any(s.traced and s.traced.records for s in daemon.sent), "it")
        log.say(XID)
        await daemon.until(lambda: daemon.sequences == [0], "the log's record")
    tracing.close()
    assert all(sent.batch.up_to is None for sent in daemon.sent if sent.traced is not None)


async def test_after_a_reboot_all_of_the_new_boot_is_read_and_gaps_at_its_start_count(tmp_path):
    log, path = FakeKmsg(tmp_path / "kmsg", first=40), tmp_path / "socket"
    log.say(XID)
    daemon = Daemon(path, "b1", 900)
    async with daemon.listening(), reading(ReaderConfig(path, log.path, "b2")):
        await daemon.until(lambda: daemon.sequences == [40], "the record")
    assert daemon.sent[0].batch.lost == 40


async def test_the_socket_is_for_this_user_and_goes_with_the_daemon(tmp_path):
    path = tmp_path / "socket"
    daemon = Daemon(path)
    async with daemon.listening():
        await daemon.until(path.exists, "the socket")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not path.exists()


async def test_a_peer_that_talks_nonsense_is_cut_off_and_the_next_one_served(tmp_path):
    path = tmp_path / "socket"
    daemon = Daemon(path)
    async with daemon.listening():
        await daemon.until(path.exists, "the socket")
        _, writer = await asyncio.open_unix_connection(path)
        writer.write(b'{"boot": 5}\n')
        await daemon.until(lambda: daemon.listener.refused == 1, "the refusal")
        writer.close()
        log = FakeKmsg(tmp_path / "kmsg")
        log.say(XID)
        async with reading(ReaderConfig(path, log.path, "b1")):
            await daemon.until(lambda: daemon.sequences == [0], "the record")


async def test_another_user_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "socket"
    daemon = Daemon(path)
    monkeypatch.setattr(record_link, "_peer_user", lambda _: os.getuid() + 1)
    async with daemon.listening():
        await daemon.until(path.exists, "the socket")
        stream, writer = await asyncio.open_unix_connection(path)
        async with asyncio.timeout(20):
            assert await stream.read() == b""
        writer.close()
    assert daemon.listener.refused == 1


async def test_something_else_that_listens_is_recognised(tmp_path):
    path = tmp_path / "socket"

    async def answer(_, writer):
        writer.write(b'{"version": 99, "boot": "", "after": null}\n')
        await writer.drain()
        writer.close()

    server = await asyncio.start_unix_server(answer, path)
    async with server:
        with pytest.raises(LinkError, match="version 99"):
            async with asyncio.timeout(20):
                await reader.serve(ReaderConfig(path, tmp_path, "b1"), asyncio.Event())


async def test_a_log_that_cannot_be_read_ends_the_reader_with_the_reason(tmp_path):
    path = tmp_path / "socket"
    daemon = Daemon(path)
    async with daemon.listening():
        with pytest.raises(SourceUnusable, match="privileged"):
            async with asyncio.timeout(20):
                await reader.serve(ReaderConfig(path, tmp_path / "none", "b1"), asyncio.Event())


def test_the_boot_is_the_kernels(tmp_path):
    assert len(reader.running_boot()) == 36
    with pytest.raises(SourceUnusable, match="/proc"):
        reader.running_boot(tmp_path / "none")
