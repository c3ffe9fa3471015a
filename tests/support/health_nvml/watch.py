"""A running NVML source on a fake library, and what it has told."""

import asyncio
import contextlib

import pytest
from support.health_nvml.build import Scenario

from health.events import Reading
from health.nvml_readings import ReadingFilter
from health.nvml_source import NvmlSource, Pace

STEADY = Pace(poll=0.05, deadline=20.0, start=20.0)
"""On a slow machine too, nothing is taken for a hang."""
PACE = Pace(poll=0.1, deadline=0.6, start=20.0, patience=0.3, retry=0.05, longest_retry=0.2)


class Watch:
    """A running source and what it told."""

    def __init__(self, scenario: Scenario, *, expected=None, told=None, pace=PACE):
        self.events = []
        self.operational = []
        self.source = NvmlSource(
            self._tell,
            ReadingFilter(told or {}, expected),
            pace=pace,
            environment=scenario.environment(),
        )

    def _tell(self, events, uptime, operational=None):
        assert uptime > 0
        self.events.extend(events)
        self.operational += [operational] * len(events)

    @contextlib.asynccontextmanager
    async def running(self):
        task = asyncio.create_task(self.source.run())
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            for child in self.source._stuck:
                async with asyncio.timeout(20):
                    await child.wait()

    async def until(self, *events):
        await self.while_not(lambda: all(event in self.events for event in events), str(events))

    async def rounds(self, number):
        goal = self.source.rounds + number
        await self.while_not(lambda: self.source.rounds >= goal, f"{number} rounds")

    async def while_not(self, condition, what):
        try:
            async with asyncio.timeout(40):
                while not condition():  # noqa: ASYNC110 - what the source tells has no event to wait on
                    await asyncio.sleep(0.02)
        except TimeoutError:
            pytest.fail(f"waited for {what}; told was {self.events}")

    def about(self, quantity, device=None):
        return [
            e.value
            for e in self.events
            if isinstance(e, Reading) and e.quantity is quantity and e.device in (device, None)
        ]
