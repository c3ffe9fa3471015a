"""The GPUs of this machine, and which pod has which.

A device is named by the word that goes into CUDA_VISIBLE_DEVICES: the UUID of a real GPU, the
number of a simulated one. What is taken follows from the records of the pods alone, so a
restarted agent comes to the same answer.
"""

import threading
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

NVML_SECONDS = 15.0


class GpuQueryError(Exception):
    """The driver is there but does not answer as it should; the text says how."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One device. `index` is the driver's; `product` is empty for simulated ones."""

    device: str
    index: int
    product: str = ""
    memory_bytes: int = 0


def simulated(number: int) -> tuple[Gpu, ...]:
    """As many GPUs that exist only by name."""
    return tuple(Gpu(str(index), index) for index in range(number))


def discover(indices: Collection[int] | None, nvml: Any = None) -> tuple[Gpu, ...]:
    """The real GPUs, by index; none when the machine has no NVIDIA driver.

    `indices` limits them. `nvml` stands in for the module pynvml. A driver that hangs is given up
    after NVML_SECONDS; its thread is left behind, since nothing can end it.

    Raises:
        GpuQueryError: the driver hangs or fails, or lacks one of the indices.
    """
    if nvml is None:
        import pynvml  # only where GPUs are asked for: it is a large module

        nvml = pynvml
    outcome: list[tuple[Gpu, ...] | Exception] = []

    def ask() -> None:
        try:
            outcome.append(_query(nvml))
        except nvml.NVMLError as error:
            outcome.append(error)

    thread = threading.Thread(target=ask, name="nvml", daemon=True)
    thread.start()
    thread.join(NVML_SECONDS)
    if not outcome:
        raise GpuQueryError(f"the NVIDIA driver did not answer within {NVML_SECONDS:g} s")
    found = outcome[0]
    if isinstance(found, Exception):
        raise GpuQueryError(f"the NVIDIA driver failed: {found}")
    if indices is None:
        return found
    missing = sorted(set(indices) - {gpu.index for gpu in found})
    if missing:
        raise GpuQueryError(f"there are no GPUs with index {missing}; the driver has {len(found)}")
    return tuple(gpu for gpu in found if gpu.index in indices)


def _query(nvml: Any) -> tuple[Gpu, ...]:
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        absent = (nvml.NVML_ERROR_LIBRARY_NOT_FOUND, nvml.NVML_ERROR_DRIVER_NOT_LOADED)
        if getattr(error, "value", None) in absent:
            return ()
        raise
    try:
        found = []
        for index in range(nvml.nvmlDeviceGetCount()):
            try:
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                found.append(
                    Gpu(
                        device=_text(nvml.nvmlDeviceGetUUID(handle)),
                        index=index,
                        product=_text(nvml.nvmlDeviceGetName(handle)),
                        memory_bytes=int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
                    )
                )
            except nvml.NVMLError as error:
                # One GPU that fell off the bus must not take the healthy ones with it.
                if getattr(error, "value", None) != nvml.NVML_ERROR_GPU_IS_LOST:
                    raise
        return tuple(found)
    finally:
        nvml.nvmlShutdown()


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def assign(
    wanted: int, inventory: Iterable[Gpu], taken: Iterable[Iterable[str]]
) -> tuple[str, ...] | None:
    """The devices for a pod that wants so many, lowest index first; None when too few are free.

    `taken`: the devices of each other pod.
    """
    busy = {device for devices in taken for device in devices}
    free = [gpu.device for gpu in inventory if gpu.device not in busy]
    return tuple(free[:wanted]) if len(free) >= wanted else None
