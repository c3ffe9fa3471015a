"""`clusterops rlhf serve` as a process, with the folder of a run to serve, and clients of OpenAI's."""

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from openai import OpenAI

from clusterops.api.names import ENV_HOME
from rlhf.config.resolve import dump, resolve
from rlhf.model.building import build
from rlhf.run_folder import RunFolder
from rlhf.tasks.vocabulary import Bytes
from rlhf.weights import Snapshots

NAME = "letters"
SECONDS = 100.0
CONTEXT = 512


def run_of_letters(folder: Path) -> RunFolder:
    """A run over bytes that has published two policies; its file of prompts is gone."""
    words = [
        f"name={NAME}", "task.name=jsonl", "task.prompts=gone.jsonl", "grader.kind=function",
        "grader.function=m:f", "model.width=32", f"model.context={CONTEXT}",
    ]  # fmt: skip
    config = resolve(None, words).config
    made = RunFolder(folder)
    made.path.mkdir()
    made.config.write_text(dump(config, run_id="letters-1"))
    for version in (3, 4):
        model = build(config.model, Bytes().size, seed=version)
        generator = torch.Generator().manual_seed(version)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() > 1:
                    parameter.normal_(std=0.12, generator=generator)
        Snapshots(made.weights).publish(version, model.state_dict())
    return made


class Served(NamedTuple):
    """A server that answers: its process, and what it said when it was ready."""

    process: "subprocess.Popen[str]"
    said: dict[str, Any]

    @property
    def key(self) -> str:
        return Path(self.said["keyFile"]).read_text().strip()

    def client(self, **more: Any) -> OpenAI:
        """A client of OpenAI's; tries once, so that what the server says is what a test sees."""
        settings = {"base_url": self.said["url"], "timeout": SECONDS, "max_retries": 0}
        return OpenAI(
            **({"api_key": self.key} if "api_key" not in more else {}), **settings, **more
        )

    def stop(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def ended(self) -> tuple[int, str]:
        """The exit code, and everything on standard error."""
        _, told = self.process.communicate(timeout=SECONDS)
        return self.process.returncode, told


def command(home: Path, *words: str) -> "subprocess.Popen[str]":
    """`clusterops rlhf ...` in a process of its own, with a state folder of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "clusterops.cli", "rlhf", *words],
        env=os.environ | {ENV_HOME: str(home), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextmanager
def serving(home: Path, checkpoint: Path, *words: str):
    """A server on a free port, until the end of the block at the latest."""
    process = command(home, "serve", str(checkpoint), "--port", "0", "-o", "json", *words)
    try:
        line = process.stdout.readline()
        if not line:
            raise AssertionError(f"the server did not start: {process.communicate()[1]}")
        yield Served(process, json.loads(line))
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()
