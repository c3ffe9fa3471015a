"""Serving from the command line: a path in, a running server out, with what to type to try it."""

import asyncio
import json
import shlex
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from rlhf.engine_settings import Settings
from rlhf.kv.plan import Limits
from rlhf.kv.waiting import Order
from rlhf.serving.loading import Loaded, load
from rlhf.serving.run import Opened, ServeConfig, opened, serve


class Address(NamedTuple):
    """Where a server answers, for what, and with which key."""

    url: str
    loaded: Loaded
    key_file: Path | None

    def as_json(self) -> dict[str, Any]:
        """For a program."""
        return {
            "url": self.url,
            "model": self.loaded.name,
            "policyVersion": self.loaded.version,
            "context": self.loaded.model.context,
            "keyFile": None if self.key_file is None else str(self.key_file),
        }

    def lines(self) -> list[str]:
        """For a person: what is served, and a line to try it with."""
        version = "" if self.loaded.version is None else f", policy version {self.loaded.version}"
        return [
            f"serving {self.loaded.name!r}{version}, context of {self.loaded.model.context} tokens, "
            f"on {self.url}",
            "try it:",
            f"  {self.curl()}",
            "or with any client of OpenAI's:",
            f"  export OPENAI_BASE_URL={shlex.quote(self.url)} OPENAI_API_KEY={self._key('no-key')}",
            "stop it with Ctrl-C",
        ]

    def curl(self) -> str:
        """A command that completes a prompt which the model knows."""
        body = {
            "model": self.loaded.name,
            "prompt": self.loaded.example.prompt,
            "max_tokens": self.loaded.example.max_tokens,
        }
        authorization = f' -H "Authorization: Bearer {self._key()}"' if self.key_file else ""
        # With plain http and without it curl sends the body as a form, which is no JSON either.
        return (
            f"curl {shlex.quote(self.url)}/completions{authorization} "
            f"-H 'Content-Type: application/json' -d {shlex.quote(json.dumps(body))}"
        )

    def _key(self, without: str = "") -> str:
        """The key for a shell: read from its file, so that it is in no history."""
        return f"$(cat {shlex.quote(str(self.key_file))})" if self.key_file else without


def engine_settings(seats: int, cache_bytes: int) -> Settings:
    """An engine for people who wait: first come, first served."""
    limits = Limits(seats=seats, budget=max(seats, Limits().budget))
    return Settings(cache_bytes=cache_bytes, limits=limits, order=Order(longest_first=False))


def run(
    checkpoint: Path,
    config: ServeConfig,
    *,
    name: str | None,
    threads: int | None,
    ready: Callable[[Address], None],
    say: Callable[[str], None],
) -> None:
    """Serves until SIGTERM or SIGINT; `ready` gets the address once there are answers.

    Raises:
        NoModel: there is no model at the path.
        CannotServe: the port is taken, the key is no good, the model is of an unknown make.
    """
    with opened(config) as entrance:
        loaded = load(checkpoint)
        if name is not None:
            loaded = replace(loaded, name=name)
        if threads or loaded.threads:
            torch.set_num_threads(threads or loaded.threads)
        asyncio.run(_until_told(loaded, config, entrance, ready, say))


async def _until_told(
    loaded: Loaded,
    config: ServeConfig,
    entrance: Opened,
    ready: Callable[[Address], None],
    say: Callable[[str], None],
) -> None:
    stop, hurry = asyncio.Event(), asyncio.Event()

    def told() -> None:
        (hurry if stop.is_set() else stop).set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, told)
    port: asyncio.Future[int] = loop.create_future()
    port.add_done_callback(
        lambda done: ready(Address(config.url(done.result()), loaded, config.key_file))
    )
    await serve(loaded, config, stop, port, entrance=entrance, hurry=hurry, say=say)
