"""Credentials: token files that rotate, plugins with deadline and expiry, fixed ones."""

import io
import json
import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from support.kube_virtual_time import until

from clusterops.kube.access import Access, ExecPlugin
from clusterops.kube.credentials import (
    Credential,
    ExecCredentials,
    Fixed,
    TokenFile,
    credentials_for,
)
from clusterops.kube.errors import ConfigError


async def test_the_ways_to_log_in_have_an_order():
    plugin = ExecPlugin("x")
    access = Access("https://h", token="t", username="u", password="p", exec_plugin=plugin)
    assert isinstance(credentials_for(access), ExecCredentials)
    fixed = credentials_for(Access("https://h", token="t", username="u"))
    assert (await fixed.current()).authorization == "Bearer t"
    basic = credentials_for(Access("https://h", username="u", password="p"))
    assert (await basic.current()).authorization == "Basic dTpw"
    assert await credentials_for(Access("https://h")).current() == Credential()
    assert not await Fixed(Credential("x")).rejected(Credential("x"))


class Clock:
    def __init__(self):
        self.seconds = 0.0

    def __call__(self):
        return self.seconds


def replace_file(path, text):
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    fresh.replace(path)  # as a projected volume does: another inode


async def test_a_token_file_is_read_again_when_it_changes(tmp_path):
    path = tmp_path / "token"
    path.write_text("one\n")
    source = TokenFile(path, now=Clock())
    assert (await source.current()).authorization == "Bearer one"
    replace_file(path, "two")
    assert (await source.current()).authorization == "Bearer two"


async def test_a_token_file_is_read_again_after_a_minute_even_if_it_looks_the_same(tmp_path):
    path = tmp_path / "token"
    path.write_text("one")
    clock = Clock()
    source = TokenFile(path, now=clock)
    await source.current()
    before = path.stat()
    path.write_text("two")  # same length; then the same times: only reading tells
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    clock.seconds = 59
    assert (await source.current()).authorization == "Bearer one"
    clock.seconds = 60
    assert (await source.current()).authorization == "Bearer two"


async def test_a_refused_token_is_read_again_at_once(tmp_path):
    path = tmp_path / "token"
    path.write_text("one")
    source = TokenFile(path, now=Clock())
    used = await source.current()
    assert not await source.rejected(used)
    replace_file(path, "two")
    assert await source.rejected(used)


async def test_while_the_file_is_away_the_last_token_is_used(tmp_path, caplog):
    path = tmp_path / "token"
    path.write_text("one")
    clock = Clock()
    source = TokenFile(path, now=clock)
    await source.current()
    path.unlink()
    clock.seconds = 61
    assert (await source.current()).authorization == "Bearer one"
    assert "keeping the last token" in caplog.text
    path.write_text("")
    assert (await source.current()).authorization == "Bearer one"
    path.write_text("two")
    assert (await source.current()).authorization == "Bearer two"


async def test_a_token_file_that_never_had_a_token_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match="cannot be used"):
        await TokenFile(tmp_path / "none").current()
    (tmp_path / "empty").write_text(" \n")
    with pytest.raises(ConfigError, match="is empty"):
        await TokenFile(tmp_path / "empty").current()


VERSION = "client.authentication.k8s.io/v1"


def plugin(program, **options):
    return ExecPlugin(sys.executable, ("-c", program), api_version=VERSION, **options)


def printing(tmp_path, **status):
    """A plugin that prints `status` with N in it replaced by how often it has run."""
    count = tmp_path / "count"
    answer = json.dumps({"apiVersion": VERSION, "kind": "ExecCredential", "status": status})
    return plugin(
        "import pathlib\n"
        f"path = pathlib.Path({str(count)!r})\n"
        "n = int(path.read_text()) + 1 if path.exists() else 1\n"
        "path.write_text(str(n))\n"
        f"print({answer!r}.replace('N', str(n)))"
    )


async def test_a_plugin_runs_once_until_its_answer_is_about_to_expire(tmp_path):
    now = [datetime(2030, 1, 1, tzinfo=UTC)]
    source = ExecCredentials(
        printing(tmp_path, token="t-N", expirationTimestamp="2030-01-01T01:00:00Z"),
        wall_now=lambda: now[0],
    )
    assert (await source.current()).authorization == "Bearer t-1"
    now[0] += timedelta(minutes=58)
    assert (await source.current()).authorization == "Bearer t-1"
    now[0] += timedelta(minutes=1, seconds=1)
    assert (await source.current()).authorization == "Bearer t-2"


async def test_a_refused_credential_is_asked_for_once_by_all(tmp_path):
    source = ExecCredentials(printing(tmp_path, token="t-N"))
    used = await source.current()
    assert await source.rejected(used)
    assert await source.rejected(used)  # another request with the same old one
    assert (await source.current()).authorization == "Bearer t-2"


async def test_a_plugin_may_give_a_certificate(tmp_path):
    source = ExecCredentials(printing(tmp_path, clientCertificateData="CERT", clientKeyData="KEY"))
    assert await source.current() == Credential(None, b"CERT", b"KEY")


async def test_a_plugin_is_told_about_the_cluster_and_gets_its_environment():
    program = (
        "import json, os\n"
        "info = json.loads(os.environ['KUBERNETES_EXEC_INFO'])\n"
        "token = os.environ['PROFILE'] + info['spec']['cluster']['server'] + info['kind']\n"
        f"print(json.dumps({{'apiVersion': {VERSION!r}, 'status': {{'token': token}}}}))"
    )
    source = ExecCredentials(
        plugin(program, env=(("PROFILE", "p"),), cluster_info={"server": "https://h"})
    )
    assert (await source.current()).authorization == "Bearer phttps://hExecCredential"


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("import sys; sys.exit('please \\x1b[31m log in')", r"code 1: please \\x1b\[31m log in"),
        ("print('hello')", "printed no ExecCredential"),
        ("print('{}')", "printed no ExecCredential"),
        ('print(\'{"status": {"token": "t"}}\')', "answered in None"),
        (f'print(\'{{"apiVersion": "{VERSION}", "status": {{}}}}\')', "neither a token nor"),
        (
            f'print(\'{{"apiVersion": "{VERSION}", "status": '
            '{"token": "t", "expirationTimestamp": "soon"}}\')',
            "expiry that is no timestamp",
        ),
    ],
)
async def test_a_plugin_that_fails_says_how(program, message):
    with pytest.raises(ConfigError, match=message):
        await ExecCredentials(plugin(program), "alice").current()


async def test_a_plugin_that_hangs_is_killed_with_its_children(tmp_path):
    pids = tmp_path / "pids"
    program = (
        "import os, pathlib, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"pathlib.Path({str(pids)!r}).write_text(f'{{os.getpid()}} {{child.pid}}')\n"
        "child.wait()"
    )
    with pytest.raises(ConfigError, match="took longer than 1 s"):
        await ExecCredentials(plugin(program), timeout_seconds=1.0).current()
    for pid in pids.read_text().split():
        await until(lambda pid=pid: not _runs(pid), within_seconds=5)


async def test_a_missing_plugin_says_how_to_install_it():
    source = ExecCredentials(ExecPlugin("/none/login", install_hint="see the wiki"), "alice")
    with pytest.raises(ConfigError, match=r"of user 'alice' cannot be started.*see the wiki"):
        await source.current()


async def test_a_plugin_that_always_needs_a_terminal_is_not_started_without_one(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO())
    source = ExecCredentials(plugin("print(1)", interactive_mode="Always"))
    with pytest.raises(ConfigError, match="needs a terminal"):
        await source.current()


def _runs(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in ("Z", "X")
