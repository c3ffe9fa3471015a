"""The operator's authority, certificate and key of tokens, kept in one Secret that its replicas share.

The first replica that starts makes them; the others, and every later start, take them from there.
So a cluster needs nobody to issue certificates, and running jobs still trust a restarted operator.
"""

import base64
import datetime
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clusterops.api import names
from clusterops.kube.client import Client
from clusterops.kube.errors import AlreadyExists, Conflict
from clusterops.local import certificates
from clusterops.local.credentials import ensure_operator_key

TRIES = 5
TOKEN_KEY = "operator.key"
FILES = ("ca.crt", "ca.key", "server.crt", "server.key", TOKEN_KEY)

log = logging.getLogger(__name__)


class IdentityContended(RuntimeError):
    """Others kept writing the Secret while this replica wanted to."""


@dataclass(frozen=True)
class Identity:
    """Files for this process, and until when the certificate may be used."""

    certificates: certificates.Certificates
    token_key: Path
    renew_at: datetime.datetime


async def obtain(
    client: Client, namespace: str, secret: str, host: str, folder: Path, now: datetime.datetime
) -> Identity:
    """What the Secret holds, made or renewed where needed, as files in `folder`.

    `host` is the name by which jobs reach the operator; `now` is aware, UTC.
    Raises KubeError, or IdentityContended.
    """
    for _ in range(TRIES):
        found = await client.find(names.SECRETS, namespace, secret)
        before = _write(folder, (found or {}).get("data") or {})
        made = certificates.ensure(folder, now, hosts=(host,))
        ensure_operator_key(folder / TOKEN_KEY)
        content = {name: (folder / name).read_bytes() for name in FILES}
        if content != before and not await _store(client, namespace, secret, found, content):
            continue
        return Identity(made, folder / TOKEN_KEY, certificates.renew_at(made))
    raise IdentityContended(
        f"Secret {namespace}/{secret} was written by others {TRIES} times in a row; "
        "is another operator using the same name with another host?"
    )


def _write(folder: Path, content: Mapping[str, str]) -> dict[str, bytes]:
    """Replaces the files in the folder by those of the Secret; what they hold."""
    for name in FILES:
        (folder / name).unlink(missing_ok=True)
    decoded = {name: base64.b64decode(content[name]) for name in FILES if name in content}
    for name, value in decoded.items():
        path = folder / name
        path.touch(mode=0o600)
        path.write_bytes(value)
    return decoded


async def _store(
    client: Client,
    namespace: str,
    secret: str,
    found: dict[str, Any] | None,
    content: Mapping[str, bytes],
) -> bool:
    """Creates or replaces the Secret; False when another replica was faster."""
    encoded = {name: base64.b64encode(value).decode("ascii") for name, value in content.items()}
    try:
        if found is None:
            metadata = {"namespace": namespace, "name": secret}
            body = {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": metadata}
            await client.create(names.SECRETS, {**body, "data": encoded})
        else:
            await client.replace(names.SECRETS, {**found, "data": encoded})
    except (AlreadyExists, Conflict):
        return False
    log.info("wrote Secret %s/%s", namespace, secret)
    return True
