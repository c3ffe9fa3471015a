"""Run by two ranks: scenarios of agreeing and failing together. Each rank prints one JSON object."""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from support.train_jobs import Walk

from clusterops import train
from clusterops.train.agreement import TorchRanks, leader_decides, together
from clusterops.train.disk import PosixDisk

Result = dict[str, Any]


def listening_addresses() -> list[str]:
    """Local addresses (hex) of this process's listening TCP sockets."""
    inodes = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            target = str(entry.readlink())
        except OSError:
            continue
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                found.append(fields[1].partition(":")[0])
    return sorted(set(found))


def raised(action: Any) -> str:
    try:
        action()
    except (train.TrainError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def agreement(rank: int) -> Result:
    ranks = TorchRanks()

    def fail_on_one() -> str:
        if rank == 1:
            raise ValueError("only here")
        return "fine"

    def stale_on_zero() -> None:
        raise train.StaleAttempt("a newer one runs")

    return {
        "highest": ranks.highest([rank, 1 - rank, 7]),
        "gather": ranks.gather({"rank": rank, "text": "x" * (1 + 500 * rank)}),
        "other": raised(lambda: together(ranks, fail_on_one)),
        "shared": raised(lambda: leader_decides(ranks, stale_on_zero)),
        "still together": ranks.gather(rank),
    }


def trained(
    folder: Path, total: int, rank: int, *, term_rank: int | None = None, step: int = -1
) -> Result:
    """A job whose state is the same on both ranks, with a part that differs."""
    job, own = Walk(), Walk()
    own.value = rank
    torch.manual_seed(rank)
    result: Result = {"drawn": []}
    try:
        with train.session(total_steps=total, checkpoint_dir=folder, save_every_steps=2) as run:
            result["resumed"] = run.resume(job=job, per_rank={"own": own}).step
            for number in run.steps():
                job.value += number
                own.value += 10
                result["drawn"].append(torch.rand(1).item())
                if number == step and rank == term_rank:
                    os.kill(os.getpid(), signal.SIGTERM)
                run.report()
    except (train.TrainError, train.Leave) as error:
        result["ended"] = type(error).__name__
        result["message"] = str(error)
    return {**result, "step": run.step, "durable": run.durable_step, "own": own.value}


def save_fails_on_one(folder: Path, rank: int) -> Result:
    real = PosixDisk.create

    def refuse(self: PosixDisk, path: Path) -> int:
        if path.name.startswith("rank_00001"):
            raise OSError(28, "No space left on device")
        return real(self, path)

    PosixDisk.create = refuse  # type: ignore[method-assign]
    try:
        return trained(folder, 50, rank)
    finally:
        PosixDisk.create = real  # type: ignore[method-assign]


def damage_of_rank_one(folder: Path, rank: int) -> Result:
    first = trained(folder, 4, rank)
    trained(folder, 6, rank)
    dist.barrier()
    if rank == 0:
        file = folder / "step_00000006" / "rank_00001.json"
        file.write_bytes(file.read_bytes()[:-3])
    dist.barrier()
    return {"first": first, "again": trained(folder, 8, rank)}


def main() -> None:
    root = Path(sys.argv[1])
    train.init_process_group("gloo")
    rank = dist.get_rank()
    report = {
        "listening": listening_addresses(),
        "agreement": agreement(rank),
        "undisturbed": trained(root / "a", 8, rank),
        "interrupted": trained(root / "b", 8, rank, term_rank=1, step=4),
        "resumed": trained(root / "b", 8, rank),
        "save fails": save_fails_on_one(root / "c", rank),
        "damage": damage_of_rank_one(root / "d", rank),
    }
    dist.barrier()
    dist.destroy_process_group()
    sys.stdout.write(json.dumps(report) + "\n")


if __name__ == "__main__":
    main()
