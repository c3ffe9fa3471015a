"""Tokens and kubeconfigs of one state folder: one identity for the person, one for each part."""

import base64
import json
import secrets
from collections.abc import Sequence
from pathlib import Path

from clusterops.local.state_folder import StateFolder, write_atomically

ADMIN = "admin"
TOKEN_BYTES = 32


def ensure_tokens(folder: StateFolder, parts: Sequence[str]) -> dict[str, str]:
    """Tokens by user name, for the person (`admin`) and each part; kept from an earlier start."""
    try:
        known = {
            entry["user"]: token for token, entry in json.loads(folder.tokens.read_text()).items()
        }
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        known = {}
    users = [ADMIN, *(part_user(part) for part in parts)]
    tokens = {user: known.get(user) or secrets.token_urlsafe(TOKEN_BYTES) for user in users}
    entries = {
        token: {"user": user, "groups": ["system:masters" if user == ADMIN else "clusterops:parts"]}
        for user, token in tokens.items()
    }
    write_atomically(folder.tokens, json.dumps(entries, indent=2) + "\n")
    return tokens


def part_user(part: str) -> str:
    """The user name that a part acts under."""
    return f"clusterops:{part}"


def ensure_operator_key(path: Path) -> None:
    """The key that the tokens of running jobs are made with; it must outlive restarts."""
    if not path.exists():
        write_atomically(path, secrets.token_hex(TOKEN_BYTES) + "\n")


def write_kubeconfig(path: Path, *, server: str, authority: Path, user: str, token: str) -> None:
    """A kubeconfig with everything inside, readable by its owner alone. JSON is YAML."""
    authority_data = base64.b64encode(authority.read_bytes()).decode("ascii")
    name = "clusterops-local"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [
            {
                "name": name,
                "cluster": {"server": server, "certificate-authority-data": authority_data},
            }
        ],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [
            {"name": name, "context": {"cluster": name, "user": user, "namespace": "default"}}
        ],
    }
    write_atomically(path, json.dumps(config, indent=2) + "\n")
