# ruff: noqa: N802, ARG002 - the names and arguments are the NVML library's
"""GPUs: found when there is a driver, given to one pod at a time, the same after a restart."""

import threading
from types import SimpleNamespace

import pytest

from clusterops.nodeagent import gpus
from clusterops.nodeagent.gpus import Gpu, GpuQueryError


class FakeNvmlError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"error {value}")
        self.value = value


class FakeNvml:
    NVMLError = FakeNvmlError
    NVML_ERROR_LIBRARY_NOT_FOUND = 12
    NVML_ERROR_DRIVER_NOT_LOADED = 9
    NVML_ERROR_GPU_IS_LOST = 15

    def __init__(self, count: int = 0, *, init_error: int = 0, lost: tuple[int, ...] = ()) -> None:
        self.count = count
        self.init_error = init_error
        self.lost = lost
        self.shut_down = False

    def nvmlInit(self) -> None:
        if self.init_error:
            raise FakeNvmlError(self.init_error)

    def nvmlShutdown(self) -> None:
        self.shut_down = True

    def nvmlDeviceGetCount(self) -> int:
        return self.count

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index in self.lost:
            raise FakeNvmlError(self.NVML_ERROR_GPU_IS_LOST)
        return index

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return f"GPU-{handle}"

    def nvmlDeviceGetName(self, handle: int) -> bytes:
        return b"NVIDIA H200"

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(total=1 << 37)


def test_real_gpus_are_known_by_uuid() -> None:
    nvml = FakeNvml(2)
    assert gpus.discover(None, nvml) == (
        Gpu("GPU-0", 0, "NVIDIA H200", 1 << 37),
        Gpu("GPU-1", 1, "NVIDIA H200", 1 << 37),
    )
    assert nvml.shut_down


@pytest.mark.parametrize("error", [9, 12])
def test_a_machine_without_a_driver_has_none(error) -> None:
    assert gpus.discover(None, FakeNvml(init_error=error)) == ()


def test_this_machine_can_be_asked() -> None:
    for gpu in gpus.discover(None):
        assert gpu.device.startswith("GPU-")


def test_a_gpu_that_is_lost_does_not_take_the_others_with_it() -> None:
    assert [gpu.index for gpu in gpus.discover(None, FakeNvml(3, lost=(1,)))] == [0, 2]


def test_a_failing_driver_is_said_not_hidden() -> None:
    with pytest.raises(GpuQueryError, match="error 999"):
        gpus.discover(None, FakeNvml(init_error=999))


def test_a_hanging_driver_is_given_up(monkeypatch) -> None:
    release = threading.Event()
    nvml = FakeNvml(1)
    monkeypatch.setattr(nvml, "nvmlInit", lambda: release.wait(30))
    monkeypatch.setattr(gpus, "NVML_SECONDS", 0.05)
    with pytest.raises(GpuQueryError, match="did not answer"):
        gpus.discover(None, nvml)
    release.set()


def test_an_agent_may_be_limited_to_some() -> None:
    assert [gpu.index for gpu in gpus.discover((2, 0), FakeNvml(4))] == [0, 2]
    with pytest.raises(GpuQueryError, match=r"index \[7\]"):
        gpus.discover((0, 7), FakeNvml(4))


def test_free_ones_are_given_lowest_first() -> None:
    four = gpus.simulated(4)
    assert gpus.assign(2, four, []) == ("0", "1")
    assert gpus.assign(2, four, [("0", "2")]) == ("1", "3")
    assert gpus.assign(0, four, [("0", "1", "2", "3")]) == ()
    assert gpus.assign(3, four, [("0",), ("1",)]) is None
