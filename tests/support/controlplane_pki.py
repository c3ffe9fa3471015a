"""Certificates of a control plane under test: one authority, one server certificate, clients at will.

Keys are ECDSA P-256, made in milliseconds; the authority's is RSA, since Kueue's certificate rotation
reads no other. It also carries the name that the rotation looks for, which therefore takes what is
here instead of making its own.
"""

import base64
import datetime
import ipaddress
import json
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_NAME = "kueue-ca"
# The last is the name that Kueue's rotation wants its webhook's certificate to carry.
SERVER_NAMES = ("localhost", "kubernetes", "kueue-webhook-service.kueue-system.svc")
DAYS = 365
RSA_BITS = 2048
PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
# The older form of a key: the API server and Kueue's rotation read some of theirs in no other.
OLDER = serialization.PrivateFormat.TraditionalOpenSSL


@dataclass(frozen=True)
class Files:
    """Where the PEM files lie; named as those of local mode."""

    authority: Path
    authority_key: Path
    server: Path
    server_key: Path
    service_account_key: Path


class Authority:
    """The authority of one control plane."""

    def __init__(self, folder: Path) -> None:
        """Makes everything in `folder`, or takes what another process has made there."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._now = datetime.datetime.now(datetime.UTC)
        self.files = Files(
            folder / "ca.crt",
            folder / "ca.key",
            folder / "server.crt",
            folder / "server.key",
            folder / "service-accounts.key",
        )
        if self.files.authority_key.exists():
            self._key = _read_key(self.files.authority_key)
            return
        self._key = rsa.generate_private_key(65537, RSA_BITS)
        self.files.authority.write_bytes(_pem(self._authority()))
        _write_secret(self.files.authority_key, _pem_key(self._key, OLDER))
        server_key = ec.generate_private_key(ec.SECP256R1())
        self.files.server.write_bytes(_pem(self._server(server_key)))
        _write_secret(self.files.server_key, _pem_key(server_key))
        accounts = ec.generate_private_key(ec.SECP256R1())
        _write_secret(self.files.service_account_key, _pem_key(accounts, OLDER))

    def client(self, user: str, groups: tuple[str, ...] = ()) -> tuple[bytes, bytes]:
        """Certificate and key, PEM, of a client that Kubernetes takes for `user` of `groups`."""
        key = ec.generate_private_key(ec.SECP256R1())
        organizations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        subject = x509.Name([*organizations, x509.NameAttribute(NameOID.COMMON_NAME, user)])
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
        builder = self._builder(subject, key).add_extension(usage, critical=False)
        return _pem(builder.sign(self._key, hashes.SHA256())), _pem_key(key)

    def _authority(self) -> x509.Certificate:
        names = x509.SubjectAlternativeName([x509.DNSName(AUTHORITY_NAME)])
        return (
            self._builder(_name(AUTHORITY_NAME), self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(names, critical=False)
            .sign(self._key, hashes.SHA256())
        )

    def _server(self, key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
        addresses = [x509.IPAddress(ipaddress.ip_address(text)) for text in ("127.0.0.1", "::1")]
        names = [*(x509.DNSName(name) for name in SERVER_NAMES), *addresses]
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
        return (
            self._builder(_name("control plane under test"), key)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(usage, critical=False)
            .sign(self._key, hashes.SHA256())
        )

    def _builder(self, subject: x509.Name, key: PrivateKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(_name(AUTHORITY_NAME))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._now - datetime.timedelta(hours=1))
            .not_valid_after(self._now + datetime.timedelta(days=DAYS))
        )


def write_kubeconfig(path: Path, server: str, authority: bytes, user: dict[str, str]) -> Path:
    """A kubeconfig; `user` is its user entry, such as {"token": ...}. Returns `path`."""
    cluster = {"server": server, "certificate-authority-data": _base64(authority)}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "test", "user": user}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
    }
    _write_secret(path, json.dumps(config, indent=2).encode())
    return path


def client_user(certificate: bytes, key: bytes) -> dict[str, str]:
    """The user entry of a kubeconfig for a client certificate."""
    return {
        "client-certificate-data": _base64(certificate),
        "client-key-data": _base64(key),
    }


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _pem_key(
    key: PrivateKey,
    form: serialization.PrivateFormat = serialization.PrivateFormat.PKCS8,
) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def _read_key(path: Path) -> rsa.RSAPrivateKey:
    key = serialization.load_pem_private_key(path.read_bytes(), None)
    assert isinstance(key, rsa.RSAPrivateKey), path
    return key


def _write_secret(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)
