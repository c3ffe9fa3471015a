"""Builds the fake NVML library and writes its scenarios."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
SOURCES = (FOLDER / "fake_nvml_devices.c", FOLDER / "fake_nvml_events.c")


def library(folder: Path, *flags: str) -> Path:
    """A folder with a libnvidia-ml.so.1 in it."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler: the fake NVML library cannot be built")
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / "libnvidia-ml.so.1"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", target, *SOURCES, *flags],
        check=True,
    )
    return folder


class Scenario:
    """What the fake library answers; a change counts from the next call on."""

    def __init__(self, folder: Path, library_folder: Path) -> None:
        self.path = folder / "scenario"
        self.shutdown = folder / "shut-down"
        self._library = library_folder
        self._settings: dict[str, str] = {}
        self._events: list[str] = []
        self._write()

    def set(self, **settings: int | str) -> None:
        """Settings of the node; a double underscore stands for the dot."""
        self._settings.update({k.replace("__", "."): str(v) for k, v in settings.items()})
        self._write()

    def gpu(self, index: int, **settings: int | str) -> None:
        """Settings of one GPU."""
        for key, value in settings.items():
            self._settings[f"{index}.{key.replace('__', '.')}"] = str(value)
        self._write()

    def unset(self, *keys: str) -> None:
        """Takes settings back."""
        for key in keys:
            self._settings.pop(key, None)
        self._write()

    def event(self, index: int, kind: int, content: int, *slice_of: int) -> None:
        """One event on a GPU."""
        parts = [len(self._events), index, kind, content, *slice_of]
        self._events.append(" ".join(["event", *map(str, parts)]))
        self._write()

    def traits(
        self,
        index: int,
        xid: int,
        *,
        severity: int,
        attributes: int,
        group: int = 0,
        trace: int = 0,
    ) -> None:
        """One event with traits on a GPU, as the newest drivers tell it; an Xid of 0 is none."""
        parts = (len(self._events), index, xid, severity, attributes, group, trace)
        self._events.append(" ".join(["traits", *map(str, parts)]))
        self._write()

    def environment(self) -> dict[str, str]:
        """The environment in which a process finds the fake."""
        return {
            **os.environ,
            "LD_LIBRARY_PATH": str(self._library),
            "FAKE_NVML_SCENARIO": str(self.path),
            "FAKE_NVML_SHUTDOWN": str(self.shutdown),
        }

    def _write(self) -> None:
        lines = [f"{key} {value}" for key, value in self._settings.items()] + self._events
        fresh = self.path.with_suffix(".new")
        fresh.write_text("".join(f"{line}\n" for line in lines))
        fresh.replace(self.path)
