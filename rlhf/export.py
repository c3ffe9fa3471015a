"""A run's policy in the Hugging Face layout, for whatever comes after training."""

import json
from pathlib import Path

from rlhf.config.resolve import run_id_of
from rlhf.model import tokenizer_files
from rlhf.run_folder import RunFolder
from rlhf.run_policy import NoPolicy, policy_of
from rlhf.weights import SnapshotUnreadable, tensors_sha256


def export(run: Path, target: Path, version: int | None = None) -> int:
    """Writes model, tokenizer and `provenance.json`; the version that was taken.

    The folder is one that the library loads, and that `rlhf serve` serves.

    Raises:
        SnapshotUnreadable: the run has published no such version, or it is damaged.
        ConfigurationInvalid: the folder is no run's.
    """
    folder = RunFolder(run)
    run_id = run_id_of(folder.config)
    try:
        policy = policy_of(run, version)
    except NoPolicy as error:
        raise SnapshotUnreadable(str(error)) from error
    target.mkdir(parents=True, exist_ok=True)
    policy.model.export(target)
    tokenizer_files.write(target, policy.vocabulary)
    provenance = {
        "runId": run_id,
        "policyVersion": policy.version,
        "weightsSha256": tensors_sha256(policy.model.state_dict()),
    }
    (target / "provenance.json").write_text(json.dumps(provenance, indent=2) + "\n")
    return policy.version
