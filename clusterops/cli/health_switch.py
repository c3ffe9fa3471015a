"""The kill switch of remediation: `health stop` and `health go`."""

from typing import Annotated, Any

import typer

from clusterops.cli.options import Context, Kubeconfig

Where = Annotated[str, typer.Option("-n", "--namespace", help="Namespace of the operator's lease.")]


def stop(where: Where = "default", kubeconfig: Kubeconfig = None, context: Context = None) -> None:
    """Stop everything that the operator does to nodes: nothing is begun, nothing acts any more."""
    from clusterops.cli import output

    _switch(where, kubeconfig, context, stopped=True)
    output.say("remediation is stopped; taints stay as they are. Go on with: clusterops health go")


def go(where: Where = "default", kubeconfig: Kubeconfig = None, context: Context = None) -> None:
    """Let the operator go on with what `stop` has stopped."""
    from clusterops.cli import output

    _switch(where, kubeconfig, context, stopped=False)
    output.say("remediation goes on. Look at it with: clusterops health nodes")


def _switch(where: str, kubeconfig: Any, context: str | None, *, stopped: bool) -> None:
    from clusterops.api import names
    from clusterops.cli import connection
    from clusterops.operator.nodes import SWITCH_NAME

    wanted = {
        "apiVersion": names.CONFIG_MAPS.api_version,
        "kind": names.CONFIG_MAPS.kind,
        "metadata": {"namespace": where, "name": SWITCH_NAME},
        "data": {"stop": "true" if stopped else "false"},
    }

    async def work(session: connection.Session) -> None:
        await session.client.apply(
            names.CONFIG_MAPS, wanted, field_manager="clusterops-cli", force=True
        )

    connection.run(connection.Target(kubeconfig, context), work)
