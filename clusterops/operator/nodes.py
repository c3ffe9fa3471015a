"""The controller of nodes: verdicts of the health daemons become taints, repairs and proven returns.

One node at a time, and one step at a time: all that is decided is written down first, so an operator
that ends anywhere goes on where it was. Jobs leave by their own controller: it sees the taint, asks
them to save within their window, and starts them elsewhere.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from clusterops.api import names
from clusterops.api.node_health import RemediationState as State
from clusterops.core import remediation_actions as actions
from clusterops.core.remediation import decide, may_execute
from clusterops.core.remediation_budget import Attempt, Budgets, Fleet, refusal
from clusterops.core.remediation_ladder import Ladder, rung_for
from clusterops.core.remediation_view import Execution, NodeView, Remedy
from clusterops.kube.client import Client
from clusterops.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from clusterops.kube.store import Key
from clusterops.operator import nodes_verification as verification
from clusterops.operator import nodes_view as views
from clusterops.operator.executor_annotation import through
from clusterops.operator.nodes_executor import DryRun, Executor
from clusterops.operator.nodes_metrics import NodeMetrics
from clusterops.operator.nodes_verification import VerificationTemplate
from clusterops.operator.tickets.port import NoTickets, TicketError, Tickets, ticket_of

LOOK_AGAIN_SECONDS = 1.0
"""While jobs leave, a program runs or the checks run: none of these changes the NodeHealth."""
VENDOR_SECONDS = 5.0
WAITING_SECONDS = 30.0
WRITE_ATTEMPTS = 5
SWITCH_NAME = "clusterops-remediation"
"""A ConfigMap of this name with `stop: "true"` in it is the kill switch."""

log = logging.getLogger(__name__)

Json = dict[str, Any]


@dataclass(frozen=True)
class RemediationConfig:
    """How nodes are remedied. As it is shipped nothing is reset or rebooted: orders are only said."""

    ladder: Ladder = field(default_factory=Ladder)
    budgets: Budgets = field(default_factory=Budgets)
    template: VerificationTemplate = field(default_factory=VerificationTemplate)
    executor: Executor = field(default_factory=DryRun)
    tickets: Tickets = field(default_factory=NoTickets)
    namespace: str = "default"
    """Where the kill switch lies."""


class Nodes:
    """Reconciles one node at a time; keys are ("", name). One worker, since budgets are shared."""

    def __init__(
        self,
        client: Client,
        config: RemediationConfig,
        now: Callable[[], float],
        enqueue: Callable[[Key], None],
        metrics: NodeMetrics | None = None,
    ) -> None:
        """`now` gives seconds since 1970 on a clock that does not leap."""
        self._client = client
        self._metrics = metrics or NodeMetrics()
        self._config = replace(config, executor=through(config.executor, client))
        self._now = now
        self._enqueue = enqueue
        self._running: dict[str, asyncio.Task[None]] = {}
        self.refused: dict[str, str] = {}
        """Why nodes have to wait, by name."""
        self.under_way: dict[str, Remedy] = {}
        """What is being done, by node."""
        self._table: dict[type[actions.Action], Callable[[NodeView, Any], Awaitable[None]]] = {
            actions.WriteRemedy: self._write_remedy,
            actions.PutTaint: self._put_taint,
            actions.RemoveTaint: self._remove_taint,
            actions.Execute: self._execute,
            actions.OpenTicket: self._open_ticket,
            actions.Verify: self._verify,
            actions.EndVerification: self._end_verification,
        }

    async def reconcile(self, key: Key) -> float | None:
        """Brings one node a step further; returns when to look again without a change."""
        name = key[1]
        health = await self._client.find(names.NODE_HEALTHS, None, name)
        node = await self._client.find(names.NODES, None, name)
        self.refused.pop(name, None)
        self.under_way.pop(name, None)
        if health is None or node is None:
            return None
        if not views.concerns(health) and views.ours(node) is None:
            return None
        concerned = any(rung_for(each.verdict) is not None for each in views.incidents(health))
        held = views.remedy(health)
        settled = held is None or held.state is State.DONE
        if held is not None and not settled:
            self.under_way[name] = held
        view = await self._view(node, health)
        enabled = not await self._stopped()
        refused = await self._refusal(view, node) if settled and concerned else None
        decision = decide(
            view, now=self._now(), ladder=self._config.ladder, refusal=refused, enabled=enabled
        )
        if refused is not None:
            self.refused[name] = refused
        if not decision.actions:
            log.debug("node %s: %s", name, decision.reason)
            if refused or not enabled:
                return WAITING_SECONDS
            with_vendor = held is not None and held.ticket is not None
            return VENDOR_SECONDS if with_vendor else LOOK_AGAIN_SECONDS
        log.info("node %s: %s", name, decision.reason)
        for action in decision.actions:
            await self._table[type(action)](view, action)
        return LOOK_AGAIN_SECONDS

    async def close(self) -> None:
        """Ends waiting for programs; what they did is seen by the boot and the checks."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # What is known

    async def _view(self, node: Json, health: Json) -> NodeView:
        name = node["metadata"]["name"]
        template = self._config.template
        check = await self._client.find(names.PODS, template.namespace, verification.pod_name(name))
        pods = await self._job_pods(name)
        jobs = sorted({f"{p['metadata']['namespace']}/{_job(p)}" for p in pods})
        proof = verification.proof(check, views.remedy(health))
        return views.view(node, health, proof=proof, jobs=tuple(jobs))

    async def _job_pods(self, node: str) -> list[Json]:
        pods, _ = await self._client.list(
            names.PODS, field_selector=f"spec.nodeName={node}", label_selector=names.LABEL_JOB
        )
        over = ("Succeeded", "Failed")
        return [pod for pod in pods if (pod.get("status") or {}).get("phase") not in over]

    async def _stopped(self) -> bool:
        switch = await self._client.find(names.CONFIG_MAPS, self._config.namespace, SWITCH_NAME)
        return switch is not None and (switch.get("data") or {}).get("stop") == "true"

    async def _refusal(self, view: NodeView, node: Json) -> str | None:
        """The budgets' answer, from all nodes as the server has them at this moment."""
        nodes, _ = await self._client.list(names.NODES)
        healths, _ = await self._client.list(names.NODE_HEALTHS)
        by_name = {health["metadata"]["name"]: health for health in healths}
        fleet = Fleet(
            tuple(views.fleet_node(each, by_name.get(each["metadata"]["name"])) for each in nodes),
            tuple(attempt for health in healths for attempt in views.attempts(health)),
        )
        cause = next((i.cause for i in view.incidents if rung_for(i.verdict) is not None), "")
        own = replace(views.fleet_node(node, None), cause="")
        return refusal(own, cause, fleet, self._config.budgets, self._now())

    # What is done

    async def _change(
        self, name: str, change: Callable[[Json], tuple[Remedy, tuple[Attempt, ...]] | None]
    ) -> None:
        """Reads the NodeHealth, changes the operator's half, writes it over that version."""
        for attempt in range(WRITE_ATTEMPTS):
            health = await self._client.get(names.NODE_HEALTHS, None, name)
            wanted = change(health)
            if wanted is None:
                return
            try:
                await self._client.patch(
                    names.NODE_HEALTHS, None, name, views.patch(health, *wanted)
                )
                return
            except Conflict:
                # The daemon writes its status all the time; that is no other decision.
                if attempt == WRITE_ATTEMPTS - 1:
                    raise

    async def _write_remedy(self, view: NodeView, action: actions.WriteRemedy) -> None:
        def change(health: Json) -> tuple[Remedy, tuple[Attempt, ...]] | None:
            if views.remedy(health) != view.remedy:
                raise Conflict(409, "Conflict", "somebody else has taken the remediation further")
            known = views.attempts(health)
            if action.attempt is not None and action.attempt not in known:
                known = (*known, action.attempt)
            return action.remedy, known

        await self._change(view.name, change)
        self._metrics.stepped(view.remedy, action.remedy, self._now())

    async def _put_taint(self, view: NodeView, action: actions.PutTaint) -> None:
        await self._taint(view.name, action.value, str(action.notice_seconds))

    async def _remove_taint(self, view: NodeView, action: actions.RemoveTaint) -> None:
        del action
        await self._taint(view.name, None, None)

    async def _taint(self, name: str, value: str | None, notice: str | None) -> None:
        """Taint and notice in one write: a job that sees the one knows the other."""
        node = await self._client.get(names.NODES, None, name)
        held = views.ours(node)
        if (held.get("value") if held else None) == value and views.notice(node) == notice:
            return
        patch = {
            "metadata": {
                "resourceVersion": node["metadata"]["resourceVersion"],
                "annotations": {names.ANNOTATION_NOTICE: notice},
            },
            "spec": {"taints": views.taints(node, value)},
        }
        await self._client.patch(names.NODES, None, name, patch)

    async def _execute(self, view: NodeView, action: actions.Execute) -> None:
        name = view.name
        if name in self._running:
            return
        if not self._config.executor.can(action.rung):
            log.warning("dry run: %s of node %s for %s", action.rung, name, action.incident)
            self._metrics.ordered(action.rung, "dry_run")
            return
        node = await self._client.get(names.NODES, None, name)
        health = await self._client.get(names.NODE_HEALTHS, None, name)
        fresh = await self._view(node, health)
        stale = may_execute(action, fresh, now=self._now(), enabled=not await self._stopped())
        if stale is not None:
            log.info("node %s: %s is not carried out: %s", name, action.rung, stale)
            self._metrics.ordered(action.rung, "stale")
            return
        assert fresh.remedy is not None, "what may be executed is written down"
        started = replace(fresh.remedy, execution=Execution.STARTED, executed_at=self._now())
        # Over the very version that was looked at: whoever comes between makes this fail.
        patch = views.patch(health, started, views.attempts(health))
        await self._client.patch(names.NODE_HEALTHS, None, name, patch)
        left = (action.expires or self._now()) - self._now()
        self._running[name] = asyncio.create_task(self._carry_out(name, action, left))

    async def _carry_out(self, name: str, order: actions.Execute, seconds: float) -> None:
        try:
            done = await self._config.executor.execute(name, order, seconds)
            result = Execution.SUCCEEDED if done else Execution.FAILED
            self._metrics.ordered(order.rung, "succeeded" if done else "failed")

            def change(health: Json) -> tuple[Remedy, tuple[Attempt, ...]] | None:
                held = views.remedy(health)
                if held is None or held.key != order.key or held.state is not State.RUNNING:
                    return None
                return replace(held, execution=result), views.attempts(health)

            await self._change(name, change)
        except KubeError as error:
            # The result is lost, not the order: it is never given again, and the boot tells.
            log.warning("node %s: the result of %s was not written: %s", name, order.rung, error)
        finally:
            self._running.pop(name, None)
            self._enqueue(("", name))

    async def _open_ticket(self, view: NodeView, action: actions.OpenTicket) -> None:
        health = await self._client.get(names.NODE_HEALTHS, None, view.name)
        try:
            number = await self._config.tickets.open(ticket_of(health, action, view.attempts))
        except TicketError as error:
            log.warning("node %s: no ticket yet: %s", view.name, error)
            self._metrics.tickets.labels(result="refused").inc()
            return
        self._metrics.tickets.labels(result="opened").inc()

        def change(current: Json) -> tuple[Remedy, tuple[Attempt, ...]] | None:
            held = views.remedy(current)
            if held is None or held.incident != action.incident:
                return None
            return replace(held, ticket=number), views.attempts(current)

        await self._change(view.name, change)

    async def _verify(self, view: NodeView, action: actions.Verify) -> None:
        node = await self._client.get(names.NODES, None, view.name)
        wanted = verification.pod(node, action.key, self._config.template)
        try:
            await self._client.create(names.PODS, wanted)
        except AlreadyExists:
            metadata = wanted["metadata"]
            found = await self._client.find(names.PODS, metadata["namespace"], metadata["name"])
            key = metadata["annotations"][names.ANNOTATION_REMEDIATION]
            if found is not None and _annotated(found) != key:
                await self._delete_pod(found, grace_seconds=0)

    async def _end_verification(self, view: NodeView, action: actions.EndVerification) -> None:
        del action
        name = verification.pod_name(view.name)
        found = await self._client.find(names.PODS, self._config.template.namespace, name)
        if found is not None:
            await self._delete_pod(found, grace_seconds=0)

    async def _delete_pod(self, pod: Json, *, grace_seconds: int) -> None:
        metadata = pod["metadata"]
        try:
            await self._client.delete(
                names.PODS,
                metadata["namespace"],
                metadata["name"],
                uid=metadata["uid"],
                grace_period_seconds=grace_seconds,
            )
        except (NotFound, Conflict):
            return  # gone, or another one of that name


def _job(pod: Mapping[str, Any]) -> str:
    return str((pod["metadata"].get("labels") or {}).get(names.LABEL_JOB, ""))


def _annotated(pod: Mapping[str, Any]) -> str | None:
    return (pod["metadata"].get("annotations") or {}).get(names.ANNOTATION_REMEDIATION)
