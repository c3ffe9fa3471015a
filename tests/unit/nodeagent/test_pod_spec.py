"""The launch plan of a container: what the shim is told to start."""

from pathlib import Path

import pytest

from clusterops.nodeagent import pod_spec
from clusterops.nodeagent.downward import ConfigError, Surroundings
from clusterops.nodeagent.environment import References
from clusterops.nodeagent.pod_spec import Launch, StartError
from clusterops.nodeagent.volumes import Volume

AROUND = Surroundings("node-a", "127.0.0.1", {})
CLAIM = Volume("ckpt", Path("/volumes/ns/claim"), create=True)


def launch(container: dict, *, gpus: tuple[str, ...] = (), **options) -> Launch:
    container = {"name": "main", "command": ["python"], **container}
    pod = {
        "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
        "spec": {"containers": [container], **options.pop("spec", {})},
    }
    return pod_spec.launch(
        pod,
        container,
        objects=References(),
        planned=[CLAIM],
        base={"PATH": "/bin", "TMPDIR": "/tmp/x"},
        gpus=gpus,
        around=AROUND,
        work_folder=Path("/work"),
        message_path=Path("/message"),
        **options,
    )


MOUNT = {"volumeMounts": [{"name": "ckpt", "mountPath": "/checkpoints"}]}


def test_command_and_args_expand_and_translate() -> None:
    found = launch(
        {
            "command": ["python", "-m", "train"],
            "args": ["--dir", "/checkpoints/$(RUN)", "--note=$(RUN)", "$$(RUN)", "/checkpointsx"],
            "env": [{"name": "RUN", "value": "r1"}, {"name": "DIR", "value": "/checkpoints/env"}],
            "workingDir": "/checkpoints",
            **MOUNT,
        }
    )
    assert found.argv == (
        *("python", "-m", "train", "--dir", "/volumes/ns/claim/r1"),
        *("--note=r1", "$(RUN)", "/checkpointsx"),
    )
    assert found.env["DIR"] == "/volumes/ns/claim/env"
    assert found.cwd == "/volumes/ns/claim"


def test_the_environment_is_base_then_pod_then_gpus() -> None:
    env = [{"name": "PATH", "value": "/mine"}, {"name": "CUDA_VISIBLE_DEVICES", "value": "all"}]
    found = launch({"env": env}, gpus=("GPU-a", "GPU-b"))
    assert found.env == {
        "PATH": "/mine",
        "TMPDIR": "/tmp/x",
        "CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b",
    }
    assert launch({}).env["CUDA_VISIBLE_DEVICES"] == ""


def test_a_container_without_a_command_can_never_start() -> None:
    with pytest.raises(StartError, match="no command") as raised:
        launch({"command": [], "args": ["x"]})
    assert raised.value.code == 128


def test_a_nul_can_never_be_passed_to_a_process() -> None:
    with pytest.raises(StartError, match="NUL"):
        launch({"args": ["a\0b"]})


def test_run_as_non_root_is_honoured_where_it_has_to_be() -> None:
    must = {"spec": {"securityContext": {"runAsNonRoot": True}}}
    with pytest.raises(ConfigError, match="runAsNonRoot"):
        launch({}, forbid_root_uid=0, **must)
    assert launch({}, forbid_root_uid=1000, **must)
    assert launch({}, forbid_root_uid=None, **must)
    assert launch({"securityContext": {"runAsNonRoot": False}}, forbid_root_uid=0, **must)


def test_without_a_working_directory_it_starts_in_its_own_folder() -> None:
    assert launch({}).cwd == "/work"


def test_the_record_holds_all_that_the_shim_reads() -> None:
    record = launch({"terminationMessagePolicy": "FallbackToLogsOnError"}).to_record(
        Path("/logs/0.log"), 1000, 3
    )
    assert record == {
        "argv": ["python"],
        "env": {"PATH": "/bin", "TMPDIR": "/tmp/x", "CUDA_VISIBLE_DEVICES": ""},
        "cwd": "/work",
        "umask": 0o022,
        "messagePath": "/message",
        "messageFromLogs": True,
        "log": "/logs/0.log",
        "logMaxBytes": 1000,
        "logMaxFiles": 3,
    }
