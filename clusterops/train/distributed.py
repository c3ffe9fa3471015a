"""Starts torch.distributed so that nothing of it listens beyond this machine when it need not.

torch's own store listens on every interface. When MASTER_ADDR is a loopback address (all ranks on one
machine), rank 0 hosts it on a socket that is already bound to that address, and gloo is told to use
the loopback interface. In every other case torch does what it always does.
"""

import ipaddress
import os
import socket
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from clusterops.api import names
from clusterops.train.errors import ConfigurationError, PortTaken

_BACKLOG = 1024
_LOOPBACK_INTERFACE = "lo"
_RENDEZVOUS = (
    names.ENV_RANK,
    names.ENV_WORLD_SIZE,
    names.ENV_MASTER_ADDR,
    names.ENV_MASTER_PORT,
)


def init_process_group(
    backend: str | None = None, *, timeout: timedelta = timedelta(minutes=5), **options: Any
) -> None:
    """Like `torch.distributed.init_process_group`, from RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT.

    `backend` is nccl where there is a GPU, else gloo. `timeout` bounds the rendezvous and each
    collective. Call it before `session`. With none of these variables set, as in `python train.py`,
    the group is this process alone.

    Raises:
        PortTaken: something else listens on MASTER_PORT (rank 0 only); exits with code 75.
        ConfigurationError: a variable is missing or impossible.
    """
    import torch
    import torch.distributed as dist
    from torch._C._distributed_c10d import HashStore, TCPStore

    chosen = backend or ("nccl" if torch.cuda.is_available() else "gloo")
    if not any(name in os.environ for name in _RENDEZVOUS):
        dist.init_process_group(
            chosen, store=HashStore(), rank=0, world_size=1, timeout=timeout, **options
        )
        return
    address = os.environ.get(names.ENV_MASTER_ADDR, "")
    if not is_loopback(address) or _has_agent_store(os.environ):
        dist.init_process_group(chosen, timeout=timeout, **options)
        return
    os.environ.setdefault("GLOO_SOCKET_IFNAME", _LOOPBACK_INTERFACE)
    os.environ.setdefault("NCCL_SOCKET_IFNAME", _LOOPBACK_INTERFACE)
    rank, world_size, port = (
        _number(os.environ, name)
        for name in (names.ENV_RANK, names.ENV_WORLD_SIZE, names.ENV_MASTER_PORT)
    )
    store = _hosted_store(address, port, world_size, timeout) if rank == 0 else None
    if store is None:
        store = TCPStore(address, port, world_size, is_master=False, timeout=timeout)
    dist.init_process_group(
        chosen, store=store, rank=rank, world_size=world_size, timeout=timeout, **options
    )


def is_loopback(address: str) -> bool:
    """Whether an address, or the name localhost, stays on this machine."""
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _hosted_store(address: str, port: int, world_size: int, timeout: timedelta) -> Any:
    from torch._C._distributed_c10d import TCPStore

    listener = _listening(address, port)
    # The store takes the descriptor over and closes it.
    return TCPStore(
        address,
        port,
        world_size,
        is_master=True,
        timeout=timeout,
        wait_for_workers=False,
        master_listen_fd=listener.detach(),
    )


def _listening(address: str, port: int) -> socket.socket:
    family, kind, protocol, _, place = socket.getaddrinfo(
        address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, protocol)
    try:
        # An attempt that has just ended leaves the port in TIME_WAIT; that is not "taken".
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise PortTaken(address, port) from error
    return listener


def _has_agent_store(environment: Mapping[str, str]) -> bool:
    """Whether torchrun hosts the store already."""
    return environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def _number(environment: Mapping[str, str], name: str) -> int:
    text = environment.get(name, "")
    if not text.isdecimal():
        raise ConfigurationError(
            f"{name} must be a number, not {text!r}; the operator sets it, and so does torchrun"
        )
    return int(text)
