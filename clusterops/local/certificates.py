"""The certificate authority of one state folder, and the certificate of its servers.

kubectl sends no token over plain http, so even loopback speaks TLS. Keys are ECDSA P-256: made in
milliseconds. The authority lasts ten years and is made once; the servers' certificate lasts one year
and is made anew when it has less than thirty days left.
"""

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from clusterops.local.state_folder import write_atomically

AUTHORITY_DAYS = 3650
SERVER_DAYS = 365
RENEWAL = datetime.timedelta(days=30)


@dataclass(frozen=True)
class Certificates:
    """Files of one state folder, PEM."""

    authority: Path
    server: Path
    server_key: Path


def ensure(folder: Path, now: datetime.datetime, hosts: Sequence[str] = ()) -> Certificates:
    """Makes what is missing, damaged, of no use together, or about to expire in `folder`; `now` is
    aware, UTC. The servers' certificate is good for loopback and for `hosts`, which are DNS names.
    """
    files = Certificates(folder / "ca.crt", folder / "server.crt", folder / "server.key")
    authority_key_file = folder / "ca.key"
    pair = _pair(files.authority, authority_key_file, now)
    if pair is None:
        key = ec.generate_private_key(ec.SECP256R1())
        pair = _authority(key, now), key
        _write(authority_key_file, _pem_key(key), 0o600)
        _write(files.authority, pair[0].public_bytes(serialization.Encoding.PEM), 0o644)
    authority, authority_key = pair
    serving = _pair(files.server, files.server_key, now)
    if serving is None or not _issued_by(serving[0], authority) or not _names(serving[0], hosts):
        key = ec.generate_private_key(ec.SECP256R1())
        _write(files.server_key, _pem_key(key), 0o600)
        certificate = _server(key, authority, authority_key, now, hosts)
        _write(files.server, certificate.public_bytes(serialization.Encoding.PEM), 0o644)
    return files


def _pair(
    certificate_file: Path, key_file: Path, now: datetime.datetime
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | None:
    """A certificate and its key, None unless both can be read, belong together and last a while."""
    try:
        certificate = x509.load_pem_x509_certificate(certificate_file.read_bytes())
        key = serialization.load_pem_private_key(key_file.read_bytes(), None)
    except (FileNotFoundError, ValueError, TypeError, UnsupportedAlgorithm):
        return None
    left = certificate.not_valid_after_utc - now
    if not isinstance(key, ec.EllipticCurvePrivateKey) or left <= RENEWAL:
        return None
    return (certificate, key) if certificate.public_key() == key.public_key() else None


def renew_at(files: Certificates) -> datetime.datetime:
    """From when on `ensure` makes the servers' certificate anew."""
    certificate = x509.load_pem_x509_certificate(files.server.read_bytes())
    return certificate.not_valid_after_utc - RENEWAL


def _names(certificate: x509.Certificate, hosts: Sequence[str]) -> bool:
    """Whether a certificate is good for all these DNS names."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return not hosts
    return set(hosts) <= set(found.value.get_values_for_type(x509.DNSName))


def _issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


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
    hosts: Sequence[str],
) -> x509.Certificate:
    names = [
        x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
        x509.IPAddress(ipaddress.ip_address("::1")),
        *(x509.DNSName(host) for host in dict.fromkeys(["localhost", *hosts])),
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
