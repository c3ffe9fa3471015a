"""Restarts a machine through its Redfish service: a program for the rung `reboot_node`.

    python -m clusterops.operator.redfish --address https://{node}-bmc --user-file F --password-file F

It is run by the operator as any program of a site is, and ends with 0 when the service has accepted the
restart. Only HTTPS with a certificate that can be checked; the password is read from a file and never
shown. That the machine came back is seen by its new boot, not by this program.
"""

import argparse
import base64
import http.client
import json
import ssl
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

SECONDS = 30.0
MAX_ANSWER_BYTES = 1_048_576
SYSTEMS = "/redfish/v1/Systems"
RESTARTS = ("ForceRestart", "PowerCycle", "GracefulRestart")
"""Ways to restart, hardest first: a machine that lost a GPU may not end in good order."""


class RedfishRefused(Exception):
    """The restart was not begun; the text says why."""


class Service:
    """One machine's Redfish service."""

    def __init__(self, address: str, user: str, password: str, trust: ssl.SSLContext) -> None:
        """Raises ValueError for an address that is not HTTPS."""
        parts = urlsplit(address)
        if parts.scheme != "https" or not parts.hostname:
            raise ValueError(f"not an https address: {address!r}")
        self._host, self._port = parts.hostname, parts.port
        self._trust = trust
        token = base64.b64encode(f"{user}:{password}".encode()).decode()
        self._headers = {"Authorization": f"Basic {token}", "Accept": "application/json"}

    def restart(self, system: str | None = None) -> str:
        """Restarts a system, the only one when none is named; returns the way. Raises RedfishRefused."""
        path = f"{SYSTEMS}/{quote(system, safe='')}" if system is not None else self._only()
        action = ((self._ask("GET", path).get("Actions") or {}).get("#ComputerSystem.Reset")) or {}
        target = action.get("target")
        if not isinstance(target, str) or not target.startswith("/redfish/"):
            raise RedfishRefused(f"{self._host}: {path} has no way to be restarted")
        offered = action.get("ResetType@Redfish.AllowableValues") or RESTARTS
        way = next((each for each in RESTARTS if each in offered), None)
        if way is None:
            raise RedfishRefused(f"{self._host}: {path} offers no restart")
        self._ask("POST", target, {"ResetType": way})
        return way

    def _only(self) -> str:
        members = self._ask("GET", SYSTEMS).get("Members") or ()
        paths = [m.get("@odata.id") for m in members if isinstance(m, dict)]
        if len(paths) != 1 or not isinstance(paths[0], str):
            raise RedfishRefused(
                f"{self._host} has {len(paths)} systems: name one of them with --system"
            )
        return paths[0]

    def _ask(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        connection = http.client.HTTPSConnection(
            self._host, self._port, timeout=SECONDS, context=self._trust
        )
        content = json.dumps(body).encode() if body is not None else None
        headers = {**self._headers, **({"Content-Type": "application/json"} if content else {})}
        try:
            connection.request(method, path, body=content, headers=headers)
            answer = connection.getresponse()
            told = answer.read(MAX_ANSWER_BYTES)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise RedfishRefused(f"{self._host} does not answer: {error}") from error
        finally:
            connection.close()
        if answer.status >= 300:
            raise RedfishRefused(f"{self._host} answers {method} {path} with HTTP {answer.status}")
        try:
            found = json.loads(told or b"{}")
        except (ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}


def main(arguments: Sequence[str] | None = None) -> int:
    """Restarts one machine; 0 when the service accepted it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--address", required=True, help="https://HOST[:PORT] of the service")
    parser.add_argument("--user-file", type=Path, required=True)
    parser.add_argument("--password-file", type=Path, required=True)
    parser.add_argument("--system", help="name of the system, when the service has several")
    parser.add_argument("--ca-file", type=Path, help="whom to trust, instead of the system's list")
    given = parser.parse_args(arguments)
    try:
        user, password = (
            file.read_text(encoding="utf-8").strip()
            for file in (given.user_file, given.password_file)
        )
        trust = ssl.create_default_context(cafile=given.ca_file)
        way = Service(given.address, user, password, trust).restart(given.system)
    except (RedfishRefused, OSError, ValueError) as error:
        print(f"no restart: {error}", file=sys.stderr)  # noqa: T201 - the program's own word
        return 1
    print(f"{way} accepted", file=sys.stderr)  # noqa: T201 - the program's own word
    return 0


if __name__ == "__main__":
    sys.exit(main())
