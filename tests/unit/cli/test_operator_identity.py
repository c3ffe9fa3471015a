"""The operator's identity in a Secret: made once, shared, renewed in time, never a second authority."""

import base64
import datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from clusterops.cli import operator_identity
from clusterops.cli.operator_identity import FILES, Identity, IdentityContended, obtain
from clusterops.kube.errors import AlreadyExists, Conflict

NOW = datetime.datetime(2026, 5, 1, tzinfo=datetime.UTC)
HOST = "clusterops-operator.clusterops-system.svc"


class Secrets:
    """The part of a client that is used here, over one Secret. `rival` writes before each write."""

    def __init__(self, rival: Any = None) -> None:
        self.stored: dict[str, Any] | None = None
        self.writes = 0
        self._rival = rival

    async def find(self, *_: Any) -> dict[str, Any] | None:
        return self.stored

    async def create(self, _: Any, obj: dict[str, Any]) -> dict[str, Any]:
        self._compete()
        if self.stored is not None:
            raise AlreadyExists(409, "AlreadyExists", "there is one")
        return self._store(obj)

    async def replace(self, _: Any, obj: dict[str, Any]) -> dict[str, Any]:
        self._compete()
        if self.stored is None or obj["metadata"] != self.stored["metadata"]:
            raise Conflict(409, "Conflict", "it changed")
        return self._store(obj)

    def _store(self, obj: dict[str, Any]) -> dict[str, Any]:
        self.writes += 1
        metadata = {**obj["metadata"], "resourceVersion": str(self.writes)}
        self.stored = {**obj, "metadata": metadata}
        return self.stored

    def _compete(self) -> None:
        if self._rival is not None:
            self._rival(self)


async def obtained(secrets: Secrets, folder: Path, now: datetime.datetime = NOW) -> Identity:
    folder.mkdir(exist_ok=True)
    return await obtain(secrets, "clusterops-system", "identity", HOST, folder, now)  # type: ignore[arg-type]


def contents(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in FILES}


async def test_the_second_replica_has_what_the_first_made(tmp_path: Path) -> None:
    secrets = Secrets()
    await obtained(secrets, tmp_path / "a")
    await obtained(secrets, tmp_path / "b")
    assert secrets.writes == 1
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


async def test_the_certificate_names_the_operators_host(tmp_path: Path) -> None:
    identity = await obtained(Secrets(), tmp_path / "a")
    certificate = x509.load_pem_x509_certificate(identity.certificates.server.read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert HOST in names.get_values_for_type(x509.DNSName)


async def test_near_its_end_the_certificate_is_renewed_under_the_same_authority(
    tmp_path: Path,
) -> None:
    secrets = Secrets()
    first = await obtained(secrets, tmp_path / "a")
    before = contents(tmp_path / "a")
    await obtained(secrets, tmp_path / "b", first.renew_at + datetime.timedelta(minutes=1))
    after = contents(tmp_path / "b")
    assert after["server.crt"] != before["server.crt"]
    kept = ("ca.crt", "ca.key", operator_identity.TOKEN_KEY)
    assert {name: after[name] for name in kept} == {name: before[name] for name in kept}
    assert secrets.writes == 2


async def test_who_is_slower_takes_what_the_other_stored(tmp_path: Path) -> None:
    other = Secrets()
    await obtained(other, tmp_path / "other")

    def faster(secrets: Secrets) -> None:
        if secrets.stored is None:
            secrets.stored = other.stored

    await obtained(Secrets(faster), tmp_path / "slower")
    assert contents(tmp_path / "slower") == contents(tmp_path / "other")


async def test_endless_contention_is_an_error_that_says_so(tmp_path: Path) -> None:
    def always(secrets: Secrets) -> None:
        secrets.writes += 1
        metadata = {"resourceVersion": f"rival-{secrets.writes}"}
        secrets.stored = {"metadata": metadata, "data": {"junk": base64.b64encode(b"x").decode()}}

    with pytest.raises(IdentityContended, match="written by others"):
        await obtained(Secrets(always), tmp_path / "a")


async def test_key_files_are_readable_by_their_owner_alone(tmp_path: Path) -> None:
    secrets = Secrets()
    await obtained(secrets, tmp_path / "a")
    await obtained(secrets, tmp_path / "b")
    for folder in ("a", "b"):
        for name in ("ca.key", "server.key", operator_identity.TOKEN_KEY):
            assert (tmp_path / folder / name).stat().st_mode & 0o077 == 0, (folder, name)
