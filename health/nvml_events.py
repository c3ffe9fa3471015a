"""Events of NVML as they happen: the newest form that the driver has. Runs in the child process only.

The newest drivers tell a fault twice: as an Xid, as ever, and as an event with its traits - whether it
is the root or follows from another, whether it was injected. `Pairing` makes one of the two.
"""

import ctypes
from collections import deque
from collections.abc import Callable
from typing import Any

import pynvml
from msgspec.structs import replace

from health.nvml_inventory import word
from health.nvml_messages import OPERATIONAL, Device, Happened, Traits

WAIT_MS = 2000
# Xid, recovery action, GPU unavailable, memory retirement and its failure, poison, storm of errors.
EVENT_TYPES = 0x8 | 0x8000 | 0x4000 | 0x400 | 0x800 | 0x2000 | 0x1000 | 0x200
XID = 0x8
HOLD_SECONDS = 1.0
"""The second telling of one fault comes within this."""
MAX_CONTEXTS = 64
MAX_HELD = 4096
_NO_INSTANCE = 0xFFFFFFFF
_LOG_WARNING = 40
_CORRECTED = 20


class Pairing:
    """Of the two tellings of one fault the one with traits. Pure: moments are handed in."""

    def __init__(self) -> None:
        self._plain: deque[Happened] = deque()
        self._told: deque[Happened] = deque()

    def heard(self, event: Happened) -> list[Happened]:
        """What is to be told now, of an event that was heard at its `uptime`."""
        if event.kind != XID:
            return [event]
        late = self.due(event.uptime)
        if event.traits is None:
            if _taken(self._told, event) is None:
                self._plain.append(event)
                if len(self._plain) > MAX_HELD:
                    late.append(self._plain.popleft())
            return late
        other = _taken(self._plain, event)
        if other is None:
            self._told.append(event)
            if len(self._told) > MAX_HELD:
                self._told.popleft()
        elif event.gpu_instance is None:
            event = replace(
                event, gpu_instance=other.gpu_instance, compute_instance=other.compute_instance
            )
        return [*late, event]

    def due(self, now: float) -> list[Happened]:
        """The plain tellings that have waited long enough for the other one."""
        late = []
        while self._plain and now - self._plain[0].uptime >= HOLD_SECONDS:
            late.append(self._plain.popleft())
        while self._told and now - self._told[0].uptime >= HOLD_SECONDS:
            self._told.popleft()
        return late

    def wait_ms(self, now: float) -> int:
        """How long the next wait may be, so that nothing is held for longer than it should."""
        if not self._plain:
            return WAIT_MS
        left = self._plain[0].uptime + HOLD_SECONDS - now
        return max(1, min(WAIT_MS, int(1000 * left) + 1))


def _taken(waiting: deque[Happened], event: Happened) -> Happened | None:
    for place, other in enumerate(waiting):
        if (other.device, other.content) == (event.device, event.content):
            del waiting[place]
            return other
    return None


class EventSet:
    """The event set that every driver has, with all boards in it."""

    def __init__(self, handles: dict[Device, Any]) -> None:
        """Raises NVMLError when there are no event sets at all."""
        self._set = pynvml.nvmlEventSetCreate()
        self._devices: dict[int | None, Device] = {}
        self.complete = bool(handles)
        """Whether the Xids of every board are told."""
        for device, handle in handles.items():
            try:
                types = pynvml.nvmlDeviceGetSupportedEventTypes(handle) & EVENT_TYPES
                pynvml.nvmlDeviceRegisterEvents(handle, types, self._set)
            except pynvml.NVMLError:
                self.complete = False
                continue
            self.complete = self.complete and bool(types & XID)
            self._devices[ctypes.cast(handle, ctypes.c_void_p).value] = device

    @property
    def empty(self) -> bool:
        """Whether there is nothing to wait for."""
        return not self._devices

    def wait(self, milliseconds: int, clock: Callable[[], float]) -> Happened | None:
        """The next event, None for one of no board. Raises NVMLError, also when none came."""
        heard = pynvml.nvmlEventSetWait_v2(self._set, milliseconds)
        device = self._devices.get(ctypes.cast(heard.device, ctypes.c_void_p).value)
        if device is None:
            return None
        return Happened(
            device,
            int(heard.eventType),
            int(heard.eventData),
            clock(),
            _instance(heard.gpuInstanceId),
            _instance(heard.computeInstanceId),
        )


class OperationalSet:
    """The event set of the newest drivers: events with their traits, each board known by its UUID."""

    def __init__(self, uuids: dict[Device, str]) -> None:
        """Raises NVMLError or AttributeError when driver or binding do not have it."""
        pynvml._nvmlGetFunctionPointer("nvmlEventSetWait_v3")
        self._set = pynvml.nvmlEventSetCreate()
        self._devices = {uuid: device for device, uuid in uuids.items()}
        for uuid in self._devices:
            config = pynvml.c_nvmlGpuOperationalEventConfig_v1_t(uuid, _LOG_WARNING, _CORRECTED)
            pynvml.nvmlEventSetRegisterGpuOperationalEvents_v1(self._set, config)

    def wait(self, milliseconds: int, clock: Callable[[], float]) -> Happened | None:
        """The next event, None for one of no board. Raises NVMLError, also when none came."""
        heard = pynvml.c_nvmlEventSetWait_v3_t(timeoutMs=milliseconds)
        pynvml.nvmlEventSetWait_v3(self._set, heard)
        device = self._devices.get(word(lambda: heard.uuid) or "")
        if device is None or heard.dataType != pynvml.NVML_EVENT_DATA_TYPE_GPU_OPERATIONAL_EVENT:
            return None
        traits = Traits(
            severity=int(heard.severity),
            attributes=int(heard.attributes),
            group_attributes=int(heard.groupAttributes),
            trace=int(heard.traceId) or None,
            module=word(lambda: heard.sourceModule),
            code=int(heard.moduleEventCode),
        )
        xid = self._xid()
        return Happened(
            device,
            OPERATIONAL if xid is None else XID,
            traits.code if xid is None else xid,
            clock(),
            _instance(heard.gpuInstanceId),
            _instance(heard.computeInstanceId),
            traits,
        )

    def _xid(self) -> int | None:
        """The Xid that goes with the event that was waited for last, None when there is none."""
        try:
            count = pynvml.c_nvmlEventSetGetContextCount_v1_t()
            pynvml.nvmlEventSetGetContextCount_v1(self._set, count)
            for index in range(min(count.count, MAX_CONTEXTS)):
                info = pynvml.c_nvmlEventSetGetContextInfo_v1_t(index=index)
                pynvml.nvmlEventSetGetContextInfo_v1(self._set, info)
                if info.nvmlGpuOperationalEventContextType != 1:
                    continue
                found = pynvml.c_nvmlEventSetGetGpuOperationalEventContextLegacyXid_v1_t(
                    index=index
                )
                pynvml.nvmlEventSetGetGpuOperationalEventContextLegacyXid_v1(self._set, found)
                return int(found.xidCode)
        except pynvml.NVMLError:
            return None
        return None


def _instance(number: int) -> int | None:
    return None if number == _NO_INSTANCE else int(number)
