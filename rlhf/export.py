"""A run's policy in the Hugging Face layout, for whatever comes after training."""

import json
from pathlib import Path

from rlhf import building
from rlhf.config.resolve import read_resolved, run_id_of
from rlhf.model.building import build
from rlhf.run_folder import RunFolder
from rlhf.weights import Snapshots, SnapshotUnreadable, tensors_sha256


def export(run: Path, target: Path, version: int | None = None) -> int:
    """Writes `config.json`, `model.safetensors` and `provenance.json`; the version that was taken.

    Raises:
        SnapshotUnreadable: the run has published no such version, or it is damaged.
        ConfigurationInvalid: the folder is no run's.
    """
    folder = RunFolder(run)
    config = read_resolved(folder.config)
    snapshots = Snapshots(folder.weights)
    there = snapshots.versions()
    if not there or (version is not None and version not in there):
        shown = ", ".join(map(str, there)) or "none"
        raise SnapshotUnreadable(f"{folder.weights} holds versions: {shown}")
    chosen = there[-1] if version is None else version
    # Only the shape is wanted of it: where the run began is of no matter any more.
    bare = config.model.model_copy(update={"device": "cpu", "start": None})
    model = build(bare, building.task(config).vocabulary.size, config.seed)
    state = snapshots.load(chosen)
    model.load_state_dict(state)
    target.mkdir(parents=True, exist_ok=True)
    model.export(target)
    provenance = {
        "runId": run_id_of(folder.config),
        "policyVersion": chosen,
        "weightsSha256": tensors_sha256(state),
    }
    (target / "provenance.json").write_text(json.dumps(provenance, indent=2) + "\n")
    return chosen
