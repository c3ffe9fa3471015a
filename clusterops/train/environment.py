"""What the operator tells a job's process, read from its environment once."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from clusterops.api import names
from clusterops.train.errors import ConfigurationError
from clusterops.train.manifest import Identity


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where to report, and the files with the token and the certificate to trust."""

    host: str
    port: int
    path: str
    token_file: Path | None
    ca_file: Path | None


@dataclass(frozen=True, slots=True)
class JobEnvironment:
    """`endpoint` is None without an operator, `directory` where none was declared.

    `processes` is how many processes the environment speaks of, `rank` which one this is.
    """

    identity: Identity
    rank: int
    processes: int
    directory: Path | None
    endpoint: Endpoint | None


def read(environment: Mapping[str, str]) -> JobEnvironment:
    """Reads the contract's variables.

    Raises:
        ConfigurationError: one has an impossible value.
    """
    directory = environment.get(names.ENV_CHECKPOINT_DIR)
    pods = _count(environment, names.ENV_PODS, 1)
    return JobEnvironment(
        identity=Identity(
            namespace=environment.get(names.ENV_NAMESPACE, ""),
            name=environment.get(names.ENV_JOB, ""),
            job_uid=environment.get(names.ENV_JOB_UID, ""),
            attempt=_count(environment, names.ENV_ATTEMPT, 0),
        ),
        rank=_count(environment, names.ENV_RANK, _count(environment, names.ENV_POD_RANK, 0)),
        processes=_count(environment, names.ENV_WORLD_SIZE, pods),
        directory=Path(directory) if directory else None,
        endpoint=_endpoint(environment),
    )


def _endpoint(environment: Mapping[str, str]) -> Endpoint | None:
    url = environment.get(names.ENV_AGENT_URL)
    if not url:
        return None
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ConfigurationError(f"{names.ENV_AGENT_URL} is no URL: {error}") from None
    if parts.scheme != "https" or not host:
        raise ConfigurationError(
            f"{names.ENV_AGENT_URL} must be an https:// URL, not {url!r}: the token must not "
            "travel in the open"
        )
    token_file = environment.get(names.ENV_AGENT_TOKEN_FILE)
    ca_file = environment.get(names.ENV_AGENT_CA_FILE)
    return Endpoint(
        host=host,
        port=port or 443,
        path=parts.path.rstrip("/"),
        token_file=Path(token_file) if token_file else None,
        ca_file=Path(ca_file) if ca_file else None,
    )


def _count(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name, "")
    if not text:
        return default
    try:
        value = int(text)
    except ValueError:
        value = -1
    if value < 0:
        raise ConfigurationError(f"{name} must be a number from 0, not {text!r}")
    return value
