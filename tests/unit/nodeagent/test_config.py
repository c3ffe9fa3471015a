"""Settings that cannot work or are not safe are refused by name."""

from pathlib import Path

import pytest
from support.nodeagent_cluster import agent_config

from clusterops.nodeagent.config import ConfigurationError


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"node_name": "Node_A"}, "node name"),
        ({"node_name": "../x"}, "node name"),
        ({"simulated_gpus": -1}, "simulated GPUs"),
        ({"log_max_bytes": 10}, "64 KiB"),
        ({"log_max_files": 0}, "one file"),
        ({"lease_seconds": 1}, "lease"),
        ({"embedded": False, "allowed_namespaces": ("a",)}, "as root"),
        ({"embedded": False, "allow_root": True}, "namespaces"),
    ],
)
def test_refused(settings, words) -> None:
    with pytest.raises(ConfigurationError, match=words):
        agent_config(Path("/x"), **settings).check(0)


def test_accepted() -> None:
    agent_config(Path("/x")).check(0)
    agent_config(Path("/x"), embedded=False, allowed_namespaces=("a",)).check(1000)
    agent_config(Path("/x"), embedded=False, allowed_namespaces=("a",), allow_root=True).check(0)
