"""`version`: this program's version, and the server's when one answers."""

from typing import Any

from clusterops.cli.options import Context, Format, Kubeconfig, Output

DEADLINE_SECONDS = 5.0


def version(
    output: Output = Format.TABLE, kubeconfig: Kubeconfig = None, context: Context = None
) -> None:
    """Say the versions of this program, of Python, and of the API server."""
    import platform
    from importlib import metadata

    from clusterops.api.text import printable
    from clusterops.cli import connection
    from clusterops.cli import output as printer
    from clusterops.kube.errors import ConfigError, KubeError

    known: dict[str, Any] = {
        "client": metadata.version("clusterops"),
        "python": platform.python_version(),
        "server": None,
    }
    missing = ""
    try:
        known["server"] = connection.run(connection.Target(kubeconfig, context), _server)
    except ConfigError:
        missing = "no cluster is configured"
    except (KubeError, TimeoutError) as error:
        missing = f"the API server does not answer: {error or 'no answer in time'}"
    if output is Format.JSON:
        printer.write_json(known)
        return
    printer.write(f"clusterops {known['client']} (Python {known['python']})")
    if known["server"] is None:
        printer.say(missing)
    else:
        place = "local mode" if known["server"]["local"] else known["server"]["address"]
        printer.write(f"server {printable(known['server']['version'])} ({place})")


async def _server(session: Any) -> dict[str, Any]:
    import asyncio
    import json

    async with asyncio.timeout(DEADLINE_SECONDS):
        answer = json.loads(await session.client.raw_get("/version"))
    return {
        "version": str(answer.get("gitVersion") or "unknown"),
        "address": session.server,
        "local": session.local is not None,
    }
