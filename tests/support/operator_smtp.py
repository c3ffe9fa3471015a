"""A mail server on loopback: enough of SMTP to take mail, with STARTTLS or TLS, and with a password."""

import base64
import contextlib
import datetime
import socket
import ssl
import threading
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def certificate(folder: Path, name: str = "localhost") -> tuple[Path, Path]:
    """A certificate that vouches for itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    begin = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(begin)
        .not_valid_after(begin + datetime.timedelta(days=36_500))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    certificate_file, key_file = folder / f"{name}.crt", folder / f"{name}.key"
    certificate_file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return certificate_file, key_file


class MailReceiver:
    """Takes one mail after the other. `refuse` is answered to the recipient's line."""

    def __init__(
        self,
        *,
        tls: tuple[Path, Path] | None = None,
        implicit: bool = False,
        password: tuple[str, str] | None = None,
        refuse: str = "",
    ) -> None:
        self.mails: list[bytes] = []
        self.recipients: list[str] = []
        self.in_the_clear: list[str] = []
        """Commands that came without TLS."""
        self._context = None
        if tls is not None:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(*tls)
        self._implicit, self._password, self._refuse = implicit, password, refuse
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]

    def __enter__(self):
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._listening.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listening.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with contextlib.suppress(OSError):
                connection.settimeout(20)
                if self._implicit:
                    connection = self._context.wrap_socket(connection, server_side=True)
                _Session(self, connection).run()


class _Session:
    """One client's visit."""

    def __init__(self, receiver: MailReceiver, connection: socket.socket) -> None:
        self._receiver = receiver
        self._take(connection)

    def run(self) -> None:
        try:
            self._answer("220 mail here")
            while line := self._stream.readline():
                command = line.decode("ascii", "replace").strip()
                word = command.partition(" ")[0].upper()
                if not isinstance(self._connection, ssl.SSLSocket):
                    self._receiver.in_the_clear.append(word)
                getattr(self, f"_{word.lower()}", self._any)(command)
                if word == "QUIT":
                    return
        finally:
            self._stream.close()
            self._connection.close()

    def _take(self, connection: socket.socket) -> None:
        self._connection, self._stream = connection, connection.makefile("rwb")

    def _answer(self, text: str) -> None:
        self._stream.write(text.encode() + b"\r\n")
        self._stream.flush()

    def _any(self, _command: str) -> None:
        self._answer("250 yes")

    def _quit(self, _command: str) -> None:
        self._answer("221 bye")

    def _ehlo(self, _command: str) -> None:
        offers = ["here"]
        if self._receiver._context is not None and not isinstance(self._connection, ssl.SSLSocket):
            offers.append("STARTTLS")
        if self._receiver._password is not None:
            offers.append("AUTH PLAIN")
        self._answer("\r\n".join([*(f"250-{offer}" for offer in offers), "250 SMTPUTF8"]))

    def _starttls(self, _command: str) -> None:
        self._answer("220 go on")
        self._stream.close()
        self._take(self._receiver._context.wrap_socket(self._connection, server_side=True))

    def _auth(self, command: str) -> None:
        told = base64.b64decode(command.split(" ")[2]).decode().split("\0")[1:]
        self._answer(
            "235 welcome" if tuple(told) == self._receiver._password else f"535 not {told}"
        )

    def _rcpt(self, command: str) -> None:
        self._receiver.recipients.append(command[8:])
        self._answer(self._receiver._refuse or "250 yes")

    def _data(self, _command: str) -> None:
        self._answer("354 go on")
        lines = []
        while (line := self._stream.readline()) not in (b".\r\n", b""):
            lines.append(line)
        self._receiver.mails.append(b"".join(lines))
        self._answer("250 taken")
