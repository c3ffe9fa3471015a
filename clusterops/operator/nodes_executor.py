"""Who carries out a rung: a program with an argument vector, as IPMI, Redfish or a site has it.

Nothing is ever handed to a shell. Until a site names its programs every order is only said (dry run).
"""

import asyncio
import contextlib
import logging
import signal
from collections.abc import Mapping, Sequence
from typing import Protocol

from clusterops.api.node_health import Rung
from clusterops.core.remediation_actions import Execute

END_SECONDS = 10.0
HOLES = ("{node}", "{gpus}", "{incident}", "{boot}")

log = logging.getLogger(__name__)


class Executor(Protocol):
    """Carries out orders. The caller has made sure that the order still stands."""

    def can(self, rung: Rung) -> bool:
        """Whether it carries out a rung at all; else the order waits for a person and expires."""
        ...

    async def execute(self, node: str, order: Execute, seconds: float) -> bool:
        """Whether the order was carried out within so many seconds."""
        ...


class DryRun:
    """The default: orders are said and not carried out."""

    def can(self, rung: Rung) -> bool:
        """Nothing."""
        del rung
        return False

    async def execute(self, node: str, order: Execute, seconds: float) -> bool:
        """Never carries anything out."""
        del node, order, seconds
        return False


class Programs:
    """A program for each rung: IPMI, Redfish, or a site's own. Rungs without one are only said."""

    def __init__(self, vectors: Mapping[Rung, Sequence[str]]) -> None:
        """Argument vectors, in which {node}, {gpus}, {incident} and {boot} are filled in."""
        self._vectors = {rung: tuple(vector) for rung, vector in vectors.items()}
        for rung, vector in self._vectors.items():
            if not vector:
                raise ValueError(f"the program for {rung} has no argument vector")

    def can(self, rung: Rung) -> bool:
        """Whether there is a program for a rung."""
        return rung in self._vectors

    async def execute(self, node: str, order: Execute, seconds: float) -> bool:
        """Runs the program; it has succeeded when it exits 0 in time."""
        filled = [_filled(argument, node, order) for argument in self._vectors[order.rung]]
        try:
            child = await asyncio.create_subprocess_exec(
                *filled, stdin=asyncio.subprocess.DEVNULL, start_new_session=True
            )
        except OSError as error:
            log.warning("%s of node %s cannot be run: %s", order.rung, node, error)
            return False
        try:
            async with asyncio.timeout(seconds):
                return await child.wait() == 0
        except TimeoutError:
            log.warning("%s of node %s did not end within %g s", order.rung, node, seconds)
            return False
        finally:
            await _end(child)


def _filled(argument: str, node: str, order: Execute) -> str:
    values = (node, ",".join(order.gpus), order.incident, order.boot_id)
    for hole, value in zip(HOLES, values, strict=True):
        argument = argument.replace(hole, value)
    return argument


async def _end(child: asyncio.subprocess.Process) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        if child.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            child.send_signal(number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_SECONDS):
                await child.wait()
