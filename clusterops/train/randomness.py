"""The state of the random number generators in use: Python's, numpy's, torch's on CPU and GPU.

Only libraries that the job has imported are looked at, and only the GPU it uses: asking about others
would start them.
"""

import random
import sys
from collections.abc import Mapping
from typing import Any


def capture() -> dict[str, Any]:
    """All generators' states, as plain values, arrays and tensors."""
    state: dict[str, Any] = {"python": random.getstate()}
    if numpy := sys.modules.get("numpy"):
        state["numpy"] = numpy.random.get_state()
    if torch := sys.modules.get("torch"):
        state["torch"] = torch.get_rng_state()
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            state["cuda"] = torch.cuda.get_rng_state()
    return state


def restore(state: Mapping[str, Any]) -> None:
    """Puts all generators back; imports the libraries whose state there is."""
    random.setstate(state["python"])
    if "numpy" in state:
        import numpy

        numpy.random.set_state(state["numpy"])
    if "torch" in state:
        import torch

        torch.set_rng_state(state["torch"])
        if "cuda" in state and torch.cuda.is_available():
            torch.cuda.set_rng_state(state["cuda"])
