"""Which cluster a command speaks to, and the connection to it for the length of one command."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from clusterops.api.names import ENV_HOME
from clusterops.cli.errors import USAGE, CommandError
from clusterops.kube import connect
from clusterops.kube.client import Client
from clusterops.local.state_folder import StateFolder, default_path

T = TypeVar("T")


@dataclass(frozen=True)
class Target:
    """What the options say about the cluster. `context` or `kubeconfig` name one explicitly."""

    kubeconfig: Path | None = None
    context: str | None = None
    namespace: str | None = None


@dataclass(frozen=True)
class Session:
    """A cluster at hand. `local` is the state folder when it is local mode, else None.

    `namespace` is the one that is asked about, `usual` the one of a command that names none.
    """

    client: Client
    namespace: str
    usual: str
    server: str
    user: str
    local: StateFolder | None


def leads_elsewhere(name: str) -> bool:
    """Whether this, as the name of an object, would make another path than that of an object."""
    return name in ("", ".", "..") or "/" in name


def local_folder(target: Target, environ: Mapping[str, str]) -> StateFolder | None:
    """Local mode's folder, when it is up and nothing names another cluster.

    ~/.kube/config is where a cluster is found when none is named: local mode, which somebody has
    just started, goes before it. $KUBECONFIG and the options name one; that may be local mode's.
    """
    folder = StateFolder(default_path(environ))
    meant = _may_mean(folder, target, environ)
    return folder if meant and folder.kubeconfig.exists() and folder.is_locked() else None


def asleep(target: Target, environ: Mapping[str, str]) -> StateFolder | None:
    """Local mode's folder when it is down and nothing names another cluster."""
    folder = StateFolder(default_path(environ))
    meant = _may_mean(folder, target, environ)
    return folder if meant and folder.kubeconfig.exists() and not folder.is_locked() else None


def _may_mean(folder: StateFolder, target: Target, environ: Mapping[str, str]) -> bool:
    """Whether the person may mean this folder's cluster: none is named, or just this one."""
    if target.context:
        return False
    # A state folder that is named goes before a kubeconfig that the shell happens to have.
    inherited = None if environ.get(ENV_HOME) else environ.get("KUBECONFIG")
    named = target.kubeconfig or inherited
    return not named or Path(named).expanduser().absolute() == folder.kubeconfig


def run(target: Target, work: Callable[[Session], Awaitable[T]]) -> T:
    """Runs `work` with a connection, in an event loop of its own, and closes it.

    An error carries a note when local mode is down and the person may have meant it: whatever was
    asked, of another cluster or of none, that is likely to be why it was not found.

    Raises:
        clusterops.kube.errors.KubeError: no cluster is configured, or what `work` met there.
    """
    try:
        return _connected(target, work)
    except Exception as error:  # only to add to it: it goes on to the edge of the process
        folder = asleep(target, os.environ)
        if folder is not None:
            error.add_note(f"local mode in {folder.root} is down; start it with: clusterops up")
        raise


def _connected(target: Target, work: Callable[[Session], Awaitable[T]]) -> T:
    folder = local_folder(target, os.environ)
    found = connect.load(
        folder.kubeconfig if folder else target.kubeconfig,
        context=target.context,
    )
    usual = found.namespace or "default"
    asked = target.namespace or usual
    if leads_elsewhere(asked):
        hint = "-n NAMESPACE"
        raise CommandError(f"no namespace can have the name {asked!r}", hint, USAGE)

    async def connected() -> T:
        client = found.client()
        try:
            return await work(Session(client, asked, usual, found.server, found.user, folder))
        finally:
            await found.close()

    return asyncio.run(connected())
