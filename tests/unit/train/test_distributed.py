"""Two real ranks over gloo: they decide together, fail together, resume together, and listen only on
loopback.
"""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.train_ranks import ended, start_ranks

from clusterops.train import distributed
from clusterops.train.errors import ConfigurationError, PortTaken

pytest.importorskip("torch")
TESTS = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What two ranks report of all scenarios; the ranks are started once for the whole module."""
    folder = tmp_path_factory.mktemp("ranks")
    path = os.pathsep.join([str(TESTS), str(TESTS.parent)])
    processes = start_ranks(
        ["-m", "support.train_rank_scenarios", str(folder)], 2, {"PYTHONPATH": path}
    )
    results = ended(processes)
    assert [code for code, _, _ in results] == [0, 0], results
    return [json.loads(out.splitlines()[-1]) for _, out, _ in results]


@pytest.mark.torch
def test_nothing_listens_beyond_loopback(reports: list[dict[str, Any]]) -> None:
    loopback = {"0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F"}
    assert reports[0]["listening"], "rank 0 hosts the store"
    for report in reports:
        assert set(report["listening"]) <= loopback


@pytest.mark.torch
def test_flags_values_and_failures_are_everybodys(reports: list[dict[str, Any]]) -> None:
    for rank, report in enumerate(reports):
        agreed = report["agreement"]
        assert agreed["highest"] == [1, 1, 7]
        assert [one["rank"] for one in agreed["gather"]] == [0, 1]
        assert len(agreed["gather"][1]["text"]) == 501
        expected = "ValueError: only here" if rank else "RankFailed: rank 1 failed with ValueError"
        assert agreed["other"].startswith(expected)
        assert agreed["shared"] == "StaleAttempt: a newer one runs"
        assert agreed["still together"] == [0, 1]


@pytest.mark.torch
def test_a_signal_to_one_rank_makes_all_leave_at_one_step(reports: list[dict[str, Any]]) -> None:
    for report in reports:
        interrupted = report["interrupted"]
        assert interrupted["ended"] == "Leave"
        assert interrupted["step"] == interrupted["durable"] == 5
        assert report["resumed"]["resumed"] == 5


@pytest.mark.torch
def test_each_rank_resumes_its_own_state_and_random_numbers(reports: list[dict[str, Any]]) -> None:
    for rank, report in enumerate(reports):
        assert report["resumed"]["own"] == report["undisturbed"]["own"] == rank + 80
        drawn = report["interrupted"]["drawn"] + report["resumed"]["drawn"]
        assert drawn == report["undisturbed"]["drawn"]
    assert reports[0]["undisturbed"]["drawn"] != reports[1]["undisturbed"]["drawn"]


@pytest.mark.torch
def test_one_ranks_full_disk_ends_the_save_on_all(reports: list[dict[str, Any]]) -> None:
    for report in reports:
        failed = report["save fails"]
        assert failed["ended"] == "StorageRefused"
        assert "No space left" in failed["message"]
        assert failed["durable"] is None


@pytest.mark.torch
def test_damage_that_one_rank_sees_makes_all_fall_back(reports: list[dict[str, Any]]) -> None:
    for report in reports:
        assert report["damage"]["first"]["durable"] == 4
        assert report["damage"]["again"]["resumed"] == 4
        assert report["damage"]["again"]["durable"] == 8


def test_a_taken_port_is_named_and_has_an_exit_code_of_its_own() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PortTaken, match=f"port {port} on 127.0.0.1 is taken") as refusal:
            distributed._listening("127.0.0.1", port)
    assert refusal.value.code == 75


def test_a_process_started_by_hand_is_a_group_of_its_own() -> None:
    program = (
        "import torch, torch.distributed as dist\n"
        "from clusterops import train\n"
        "train.init_process_group('gloo')\n"
        "total = torch.ones(1)\n"
        "dist.all_reduce(total)\n"
        "print(dist.get_rank(), dist.get_world_size(), total.item())\n"
        "dist.destroy_process_group()\n"
    )
    rendezvous = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    alone = {name: value for name, value in os.environ.items() if name not in rendezvous}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=alone, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.stdout.split() == ["0", "1", "1.0"], done.stderr


@pytest.mark.parametrize("missing", ["RANK", "WORLD_SIZE", "MASTER_PORT"])
def test_a_missing_variable_is_named(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    for name, value in {
        "MASTER_ADDR": "127.0.0.1",
        "RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_PORT": "1",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "lo")
    monkeypatch.delenv(missing)
    with pytest.raises(ConfigurationError, match=missing):
        distributed.init_process_group("gloo")


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("127.0.0.1", True),
        ("127.8.0.1", True),
        ("::1", True),
        ("localhost", True),
        ("10.0.0.1", False),
        ("job-0.job", False),
        ("", False),
    ],
)
def test_only_loopback_addresses_count_as_local(address: str, local: bool) -> None:
    assert distributed.is_loopback(address) is local
