"""The run as it is now, if it goes on: what it waits for, and where whoever holds it stands."""

from rlhf.doctor.findings import STALL, Section, warning
from rlhf.doctor.stalls import Stalls, innermost
from rlhf.live_state import LiveState

TOPIC = "now"
_LONG_SECONDS = 30.0
_USUAL = 3.0
"""A wait is long when it is beyond this multiple of the slowest that came to an end."""


def report(state: LiveState | None, stalls: Stalls) -> Section | None:
    """What is going on; None of a run that has ended or died."""
    if state is None:
        return None
    figures = {
        "pid": state.pid,
        "delivered": state.delivered,
        "trained": state.trained,
        "depth": state.depth,
        "waits": state.waits,
        "oldestSeconds": round(state.oldest_seconds, 3),
    }
    lines = [
        f"now: process {state.pid} goes on, {state.trained} batches trained, {state.depth} samples "
        "under way",
        *(f"  {wait}" for wait in state.waits),
    ]
    slowest = max(stalls.stages[name].maximum for name in ("rollout", "grading"))
    if state.oldest_seconds <= max(_LONG_SECONDS, _USUAL * slowest):
        return Section(TOPIC, figures, (), tuple(lines))
    place = innermost(state.stack)
    told = (
        f"it has waited for {state.oldest_seconds:.0f} s now, and never so long before: "
        + (state.waits[0] if state.waits else "nobody")
        + (f"; found at {place}" if place else "")
    )
    return Section(TOPIC, figures, (warning(TOPIC, told, STALL - 1),), tuple(lines))
