"""Certificates of the state folder: verified by TLS itself, kept, and renewed in time."""

import asyncio
import datetime
import socket
import ssl
import stat
from pathlib import Path

import pytest

from clusterops.local import certificates

NOW = datetime.datetime(2030, 5, 17, 12, tzinfo=datetime.UTC)


async def _handshake(files: certificates.Certificates, host: str) -> None:
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    serving.load_cert_chain(files.server, files.server_key)
    calling = ssl.create_default_context(cafile=str(files.authority))

    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=serving)
    async with server:
        port = server.sockets[0].getsockname()[1]
        connected = await asyncio.open_connection(
            "127.0.0.1", port, ssl=calling, server_hostname=host, family=socket.AF_INET
        )
        connected[1].close()
        await connected[1].wait_closed()


async def test_clients_that_trust_the_authority_accept_the_server_by_address_and_by_name(
    tmp_path: Path,
):
    files = certificates.ensure(tmp_path, datetime.datetime.now(datetime.UTC))
    await _handshake(files, "127.0.0.1")
    await _handshake(files, "localhost")


async def test_another_name_is_refused(tmp_path: Path):
    files = certificates.ensure(tmp_path, datetime.datetime.now(datetime.UTC))
    with pytest.raises(ssl.SSLCertVerificationError):
        await _handshake(files, "example.org")


def test_keys_are_readable_by_their_owner_alone(tmp_path: Path):
    files = certificates.ensure(tmp_path, NOW)
    for key in (files.server_key, tmp_path / "ca.key"):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_a_second_start_keeps_everything(tmp_path: Path):
    files = certificates.ensure(tmp_path, NOW)
    before = [path.read_bytes() for path in sorted(tmp_path.iterdir())]
    certificates.ensure(tmp_path, NOW + datetime.timedelta(days=300))
    assert [path.read_bytes() for path in sorted(tmp_path.iterdir())] == before
    assert files.authority.exists()


def test_an_expiring_server_certificate_is_renewed_under_the_same_authority(tmp_path: Path):
    files = certificates.ensure(tmp_path, NOW)
    authority, server = files.authority.read_bytes(), files.server.read_bytes()
    certificates.ensure(tmp_path, NOW + datetime.timedelta(days=340))
    assert files.authority.read_bytes() == authority
    assert files.server.read_bytes() != server


@pytest.mark.parametrize("content", [None, "", "-----BEGIN", "a pair's other half"])
@pytest.mark.parametrize("damaged", ["server.crt", "server.key", "ca.crt", "ca.key"])
async def test_a_lost_torn_or_foreign_file_is_made_anew_with_all_that_hangs_on_it(
    tmp_path: Path, damaged: str, content: str | None
):
    now = datetime.datetime.now(datetime.UTC)
    for name in ("ours", "others"):
        (tmp_path / name).mkdir()
        certificates.ensure(tmp_path / name, now)
    broken = tmp_path / "ours" / damaged
    if content is None:
        broken.unlink()
    elif content.startswith("a pair"):
        broken.write_bytes((tmp_path / "others" / damaged).read_bytes())
    else:
        broken.write_text(content)
    await _handshake(certificates.ensure(tmp_path / "ours", now), "127.0.0.1")


def test_an_expiring_authority_takes_the_servers_certificate_along(tmp_path: Path):
    files = certificates.ensure(tmp_path, NOW)
    authority, server = files.authority.read_bytes(), files.server.read_bytes()
    certificates.ensure(tmp_path, NOW + datetime.timedelta(days=3645))
    assert files.authority.read_bytes() != authority
    assert files.server.read_bytes() != server
