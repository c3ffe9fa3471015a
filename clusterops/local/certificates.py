"""The certificate authority of one state folder, and the certificate of its servers.

kubectl sends no token over plain http, so even loopback speaks TLS. Keys are ECDSA P-256: made in
milliseconds. The authority lasts ten years and is made once; the servers' certificate lasts one year
and is made anew when it has less than thirty days left.
"""

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from clusterops.local.state_folder import write_atomically

AUTHORITY_DAYS = 3650
SERVER_DAYS = 365
RENEW_DAYS = 30


@dataclass(frozen=True)
class Certificates:
    """Files of one state folder, PEM."""

    authority: Path
    server: Path
    server_key: Path


def ensure(folder: Path, now: datetime.datetime) -> Certificates:
    """Makes what is missing or about to expire in `folder`; `now` is aware, UTC."""
    files = Certificates(folder / "ca.crt", folder / "server.crt", folder / "server.key")
    authority_key_file = folder / "ca.key"
    if not (files.authority.exists() and authority_key_file.exists()):
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _authority(key, now)
        _write(authority_key_file, _pem_key(key), 0o600)
        _write(files.authority, certificate.public_bytes(serialization.Encoding.PEM), 0o644)
        files.server.unlink(missing_ok=True)
    if not _still_valid(files, now):
        authority = x509.load_pem_x509_certificate(files.authority.read_bytes())
        authority_key = serialization.load_pem_private_key(authority_key_file.read_bytes(), None)
        if not isinstance(authority_key, ec.EllipticCurvePrivateKey):
            raise ValueError(
                f"{authority_key_file} is not an elliptic-curve key; delete {folder} to make new ones"
            )
        key = ec.generate_private_key(ec.SECP256R1())
        _write(files.server_key, _pem_key(key), 0o600)
        certificate = _server(key, authority, authority_key, now)
        _write(files.server, certificate.public_bytes(serialization.Encoding.PEM), 0o644)
    return files


def _still_valid(files: Certificates, now: datetime.datetime) -> bool:
    try:
        certificate = x509.load_pem_x509_certificate(files.server.read_bytes())
    except (OSError, ValueError):
        return False
    left = certificate.not_valid_after_utc - now
    return files.server_key.exists() and left > datetime.timedelta(days=RENEW_DAYS)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: datetime.datetime,
    days: int,
) -> x509.CertificateBuilder:
    # A day of slack at the start, for clocks that were set back.
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _authority(key: ec.EllipticCurvePrivateKey, now: datetime.datetime) -> x509.Certificate:
    name = _name("clusterops local authority")
    return (
        _builder(name, name, key, now, AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


def _server(
    key: ec.EllipticCurvePrivateKey,
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
    now: datetime.datetime,
) -> x509.Certificate:
    names = [
        x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
        x509.IPAddress(ipaddress.ip_address("::1")),
        x509.DNSName("localhost"),
    ]
    return (
        _builder(_name("clusterops local server"), authority.subject, key, now, SERVER_DAYS)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()),
            critical=False,
        )
        .sign(authority_key, hashes.SHA256())
    )


def _pem_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _write(path: Path, content: bytes, mode: int) -> None:
    write_atomically(path, content.decode("ascii"), mode)
    path.chmod(mode)
