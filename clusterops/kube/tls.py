"""The TLS side of talking to an API server."""

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from clusterops.kube.access import Access
from clusterops.kube.errors import ConfigError


def client_context(
    access: Access, certificate_pem: bytes | None = None, key_pem: bytes | None = None
) -> ssl.SSLContext:
    """A context that trusts the cluster's CA only (the system's when none is named).

    `certificate_pem` and `key_pem` take the place of the access's own. Raises ConfigError.
    """
    try:
        context = ssl.create_default_context(cadata=access.ca_pem or None)
    except ssl.SSLError as error:
        raise ConfigError(
            f"the certificate authority of {access.server} is no PEM certificate: {error}"
        ) from error
    # Python 3.13 turned on strict RFC 5280 checks, which the CAs of many clusters fail.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if access.insecure_skip_tls_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    certificate = certificate_pem or access.client_certificate_pem
    key = key_pem or access.client_key_pem
    if certificate:
        try:
            with _as_file(certificate + b"\n" + (key or b"")) as path:
                context.load_cert_chain(path)
        except ssl.SSLError as error:
            raise ConfigError(
                f"the client certificate for {access.server} and its key cannot be used together: "
                f"{error}"
            ) from error
    return context


@contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    # OpenSSL reads certificates from paths only. A memory file keeps the key off the disk.
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("client-certificate")
        try:
            with os.fdopen(os.dup(descriptor), "wb") as memory:
                memory.write(content)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    with tempfile.NamedTemporaryFile(prefix="client-certificate-") as file:  # created with 0600
        file.write(content)
        file.flush()
        yield file.name
