"""The checks that prove a repaired node healthy: `python -m health.verification --gpus N --result FILE`.

Every GPU is there and the driver wants nothing for it, no memory waits for a reset, no link is down;
then each multiplies matrices and holds patterns in its memory, twice with the same result and not
slower than before. The result is one JSON object; the exit status is 0 when all passed. What cannot
be checked has not passed.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pynvml

from health import verification_compute, verification_figures
from health.nvml_calls import Questioner
from health.nvml_messages import Values
from health.verification_figures import Figures, HistoryUnreadable
from health.verification_simulated import (
    simulated_compute_faults,
    simulated_faults,
    simulated_gpus,
)
from health.verification_values import value_faults

MAX_RESULT_BYTES = 4000  # what a termination message holds
MAX_FAULTS = 20
MAX_FAULT_CHARACTERS = 120


def nvml_faults(expected: int) -> list[str]:
    """What NVML says against the node, in words."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return [f"NVML does not work: {error}"]
    try:
        found = pynvml.nvmlDeviceGetCount()
        faults = [] if found >= expected else [f"{found} GPUs are there of {expected}"]
        questioner = Questioner(lambda: True)
        answers: dict[int, Values] = {}
        for index in range(found):
            try:
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            except pynvml.NVMLError as error:
                faults.append(f"GPU {index}: {error}")
                continue
            answers[index] = answer = questioner.ask((0, 0, index), handle)
            faults += [f"GPU {index}: {fault}" for fault in value_faults(answer.values)]
            if answer.error:
                faults.append(f"GPU {index}: NVML error {answer.error}")
        return faults + link_faults(answers)
    except pynvml.NVMLError as error:
        return [f"NVML does not answer: {error}"]
    finally:
        pynvml.nvmlShutdown()


def link_faults(answers: Mapping[int, Values]) -> list[str]:
    """GPUs with fewer NVLinks up than siblings with as many have; cards without a bridge have none."""
    faults = []
    for index, answer in answers.items():
        active = answer.links_active
        if not active:
            continue
        alike = [
            a.links_active or 0 for a in answers.values() if a.links_there == answer.links_there
        ]
        if max(alike) > active:
            faults.append(f"GPU {index}: {max(alike) - active} NVLinks are down")
    return faults


def compute_faults(expected: int, seconds: float, figures: dict[str, Figures]) -> list[str]:
    """Multiplies matrices and tests memory on every GPU; puts the speeds into `figures`."""
    # NVML counts GPUs by their place on the bus; CUDA does so only when it is told before it starts.
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    try:
        import torch
    except ModuleNotFoundError:
        return ["the image has no torch, so nothing was computed"]
    if not torch.cuda.is_available() or torch.cuda.device_count() < expected:
        return [f"CUDA sees {torch.cuda.device_count()} GPUs of {expected}"]
    faults = []
    for index in range(expected):
        try:
            device = torch.device("cuda", index)
            wrong, speed = verification_compute.check(torch, device, seconds=seconds / expected)
            figures[_name(torch, index)] = speed
            faults += [f"GPU {index}: {fault}" for fault in wrong]
        except RuntimeError as error:
            faults.append(f"GPU {index}: {(str(error).splitlines() or ['it failed'])[0]}")
    return faults


def _name(torch: Any, index: int) -> str:
    """The board's own name, so that its history does not pass to the one that takes its place."""
    uuid = getattr(torch.cuda.get_device_properties(index), "uuid", None)
    return f"GPU-{uuid}" if uuid is not None else f"GPU {index}"


def verify(
    expected: int,
    *,
    seconds: float,
    simulated: Mapping[str, Mapping[str, int]] | None = None,
    history: Path | None = None,
) -> dict[str, Any]:
    """All checks; stops at the first kind that fails, since the next would only hang. `simulated`
    says how GPUs are that exist only by name; `history` is where earlier figures are kept.
    """
    measured: dict[str, float] = {}
    figures: dict[str, Figures] = {}
    notes: dict[str, Any] = {"figures": figures} if simulated is None and expected else {}
    checks: list[tuple[str, Callable[[], list[str]]]] = [
        ("nvml", lambda: nvml_faults(expected)),
        ("compute", lambda: compute_faults(expected, seconds, figures)),
        ("speed", lambda: speed_faults(figures, history, notes)),
    ]
    if simulated is not None:
        checks = [
            ("names", lambda: simulated_faults(expected, os.environ, simulated)),
            ("compute", lambda: simulated_compute_faults(expected, simulated, measured)),
        ]
    if expected == 0:
        checks = []
    for name, check in checks:
        faults = check()
        if faults:
            cut = [fault[:MAX_FAULT_CHARACTERS] for fault in faults[:MAX_FAULTS]]
            return {"passed": False, "check": name, "faults": cut, **measured, **notes}
    return {"passed": True, "checks": [name for name, _ in checks], **measured, **notes}


def speed_faults(
    figures: Mapping[str, Figures], history: Path | None, notes: dict[str, Any]
) -> list[str]:
    """What is slower than before or than its siblings; figures that passed are kept. That the history
    cannot be read or written is noted and keeps no node out.
    """
    before: verification_figures.History = {}
    try:
        before = verification_figures.read(history) if history is not None else {}
    except HistoryUnreadable as error:
        notes["history"] = str(error)[:MAX_FAULT_CHARACTERS]
    faults = verification_figures.slow(figures, before)
    if faults or history is None or not figures:
        return faults
    try:
        verification_figures.write(history, verification_figures.grown(before, figures))
    except OSError as error:
        notes["history"] = f"cannot be written: {error.strerror}"
    return []


def main(arguments: list[str] | None = None) -> int:
    """Runs the checks and writes the result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gpus", type=int, required=True, help="how many there should be")
    parser.add_argument("--result", type=Path, required=True, help="file for the result")
    parser.add_argument("--seconds", type=float, default=60.0, help="of multiplying, in all")
    parser.add_argument(
        "--history", type=Path, help="file on the node for figures of earlier checks"
    )
    parser.add_argument(
        "--simulated", type=Path, nargs="?", const=Path(os.devnull), metavar="FILE",
        help="the GPUs exist only by name; FILE says which are not well",
    )  # fmt: skip
    given = parser.parse_args(arguments)
    simulated = None
    if given.simulated is not None:
        simulated = simulated_gpus(given.simulated if given.simulated.is_file() else None)
    result = verify(given.gpus, seconds=given.seconds, simulated=simulated, history=given.history)
    text = json.dumps(result)
    if len(text) > MAX_RESULT_BYTES:
        short = {name: result[name] for name in ("passed", "check") if name in result}
        text = json.dumps({**short, "faults": result.get("faults", [])[:1]})
    given.result.write_text(text)
    return 0 if result["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
