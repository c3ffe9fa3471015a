"""Reward functions in processes of their own: one that hangs is killed and replaced.

What a hung function was doing is asked first (its stack goes into the missing reward's detail), so
the report names the line. A crash costs one answer, never the run.
"""

import asyncio
import contextlib
import os
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from rlhf.graders import wire
from rlhf.graders.protocol import Answer, BadAnswer, GraderFailed, Sample
from rlhf.graders.worker import LENGTH_BYTES, READY

_START_SECONDS = 60.0
_STACK_SECONDS = 1.0
_KEPT_OUTPUT_BYTES = 16 << 10
_STACK_END = re.compile(
    rb"(?:Current thread|Thread) .*?\(most recent call first\):\n(?:  File .*\n)+"
)


class ProcessGrader:
    """Scores by `module:function` in `workers` processes, started when first needed.

    An answer is waited for `timeout_seconds` and may have `wire.MOST_BYTES`. `search_path` are
    folders to import from besides the usual ones.
    """

    largest_batch = 1

    def __init__(
        self,
        function: str,
        *,
        workers: int = 2,
        timeout_seconds: float = 30.0,
        pure: bool = False,
        search_path: Sequence[Path] = (),
    ) -> None:
        if workers < 1:
            raise ValueError(f"workers is {workers}; at least one process is needed")
        self.name = function
        self.pure = pure
        self.replaced = 0
        """Processes killed or lost, and started anew."""
        self._timeout_seconds = timeout_seconds
        worker = (sys.executable, "-m", "rlhf.graders.worker", function)
        self._command: tuple[str, ...] = (*worker, *map(str, search_path))
        self._idle: list[_Worker] = []
        self._room = asyncio.Semaphore(workers)

    async def grade(self, samples: Sequence[Sample]) -> list[Answer]:
        """One request per sample.

        Raises:
            TimeoutError: no answer in time; says where the function was. The process is replaced.
            GraderFailed: the process crashed or cannot start.
            BadAnswer: the answer is too large or no answer.
        """
        return [answer for sample in samples for answer in await self._ask(sample)]

    async def close(self) -> None:
        """Kills all processes. Calls under way must have ended."""
        while self._idle:
            await self._idle.pop().end()

    async def _ask(self, sample: Sample) -> list[Answer]:
        async with self._room:
            worker = self._idle.pop() if self._idle else await _Worker.start(self._command)
            try:
                answers = wire.decode_reply(await self._exchange(worker, sample))
            except BaseException:
                # Also when cancelled: a process with half an exchange behind it is of no use.
                self.replaced += 1
                await worker.end()
                raise
            self._idle.append(worker)
            return answers

    async def _exchange(self, worker: "_Worker", sample: Sample) -> bytes:
        try:
            async with asyncio.timeout(self._timeout_seconds):
                await worker.send(wire.encode_request([sample], ""))
                return await worker.receive()
        except TimeoutError:
            stack = await worker.stack()
            raise TimeoutError(
                f"no answer in {self._timeout_seconds:g} s; the function was at\n{stack}"
            ) from None


class _Worker:
    """One process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._output = bytearray()
        self._news = asyncio.Event()
        self._reader = asyncio.create_task(self._read_output(), name=f"grader {process.pid} output")

    @classmethod
    async def start(cls, command: Sequence[str]) -> "_Worker":
        """A process that has loaded its function.

        Raises:
            GraderFailed: it cannot, and why.
        """
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        worker = cls(process)
        try:
            async with asyncio.timeout(_START_SECONDS):
                if await worker.receive() != READY:
                    raise GraderFailed("the grader's process did not begin as agreed on")
        except TimeoutError:
            await worker.end()
            raise GraderFailed(
                f"the grader's process was not ready in {_START_SECONDS:g} s: {worker.said()}"
            ) from None
        except BaseException:
            await worker.end()
            raise
        return worker

    async def send(self, body: bytes) -> None:
        """One frame to the process."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(len(body).to_bytes(LENGTH_BYTES, "big") + body)
            await self._process.stdin.drain()
        except (BrokenPipeError, ConnectionResetError):
            raise GraderFailed(await self._end_in_words()) from None

    async def receive(self) -> bytes:
        """One frame from it.

        Raises:
            GraderFailed: it ended instead.
            BadAnswer: the frame is too large.
        """
        assert self._process.stdout is not None
        try:
            head = await self._process.stdout.readexactly(LENGTH_BYTES)
            length = int.from_bytes(head, "big")
            if length > wire.MOST_BYTES:
                raise BadAnswer(f"an answer of {length} bytes; at most {wire.MOST_BYTES}")
            return await self._process.stdout.readexactly(length)
        except asyncio.IncompleteReadError:
            raise GraderFailed(await self._end_in_words()) from None

    async def stack(self) -> str:
        """Where the process is, innermost call first."""
        self._output.clear()
        try:
            os.kill(self._process.pid, signal.SIGUSR1)
            async with asyncio.timeout(_STACK_SECONDS):
                while not _STACK_END.search(self._output):
                    self._news.clear()
                    await self._news.wait()
        except ProcessLookupError:
            return "(it has ended)"
        except TimeoutError:
            return self.said() or "(it does not say where it is)"
        return self.said()

    async def end(self) -> None:
        """Kills the process and whatever it started."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        await self._read_to_end()
        if self._process.stdin is not None:
            self._process.stdin.close()

    def said(self) -> str:
        """The last of what it printed."""
        return self._output.decode("utf-8", "replace").strip()

    async def _end_in_words(self) -> str:
        await self._process.wait()
        await self._read_to_end()
        code = self._process.returncode
        how = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        said = self.said()
        return f"the grader's process ended with {how}" + (f"; it said: {said}" if said else "")

    async def _read_to_end(self) -> None:
        # Something it started, in a session of its own, may keep the pipe open for ever.
        await asyncio.wait([self._reader], timeout=_STACK_SECONDS)
        self._reader.cancel()

    async def _read_output(self) -> None:
        assert self._process.stderr is not None
        while piece := await self._process.stderr.read(4096):
            self._output += piece
            del self._output[:-_KEPT_OUTPUT_BYTES]
            self._news.set()
