"""The processes of jobs in the world of `operator_world`: they step, save, report, leave and fail."""

import json
import random
from dataclasses import dataclass, field
from typing import Any

from support.operator_server import FakeServer

from clusterops.api import names
from clusterops.api.heartbeat import Answer, Durable, Heartbeat, SaveRequest
from clusterops.operator import tokens
from clusterops.operator.endpoint import Endpoint

Json = dict[str, Any]


@dataclass
class Trainer:
    """The processes of one attempt of one job, as `clusterops.train` has them behave."""

    job: str
    uid: str
    attempt: int
    ranks: int
    total: int
    save_seconds: float
    obeys: bool
    step: int = 0
    durable: int = 0
    asked: SaveRequest | None = None
    saving_until: float | None = None
    saved_for_notice: bool = False
    acknowledged_in: int | None = None  # the operator's life that took the report of that save
    stale: bool = False
    finished: bool = False
    left: set[int] = field(default_factory=set)
    done: set[int] = field(default_factory=set)


def gets_term(pod: Json) -> bool:
    """A node sends TERM to a pod that is deleted, and to one whose deadline has passed."""
    return "deletionTimestamp" in pod["metadata"] or "activeDeadlineSeconds" in pod["spec"]


class TrainingProcesses:
    """Everything that runs inside pods. A part of `World`, which has the attributes named here."""

    server: FakeServer
    rng: random.Random
    clock: Any
    endpoint: Endpoint
    down_until: float
    crashes: int
    trainers: dict[tuple[str, int], Trainer]
    durable: dict[str, int]
    plans: dict[str, Json]
    user_errors: dict[str, int]
    _ready_nodes: Any
    _pod_status: Any

    def _train(self) -> None:
        groups: dict[tuple[str, int], list[Json]] = {}
        for pod in self.server.peek("pods"):
            labels = pod["metadata"]["labels"]
            key = (labels[names.LABEL_JOB], int(labels[names.LABEL_ATTEMPT]))
            groups.setdefault(key, []).append(pod)
        ready = self._ready_nodes()
        for (job, attempt), pods in sorted(groups.items()):
            running = [
                pod
                for pod in pods
                if pod.get("status", {}).get("phase") == "Running"
                and pod["spec"]["nodeName"] in ready
            ]
            if running:
                self._train_attempt(job, attempt, running)

    def _train_attempt(self, job: str, attempt: int, running: list[Json]) -> None:
        plan = self.plans[job]
        environment = {e["name"]: e["value"] for e in running[0]["spec"]["containers"][0]["env"]}
        ranks = int(environment["WORLD_SIZE"])
        trainer = self.trainers.get((job, attempt))
        if trainer is None:
            if len(running) < ranks:
                # Rendezvous; a rank that gets TERM meanwhile just ends.
                for pod in running:
                    if gets_term(pod):
                        self._pod_status(pod, "Failed", 143)
                return
            resumed = self.durable.get(job, 0)
            trainer = Trainer(
                job,
                environment[names.ENV_JOB_UID],
                attempt,
                ranks,
                plan["total"],
                plan["save_seconds"],
                plan["obeys"],
                step=resumed,
                durable=resumed,
            )
            self.trainers[(job, attempt)] = trainer
        live = {int(pod["metadata"]["labels"][names.LABEL_RANK]): pod for pod in running}
        self._advance(trainer, live, plan)
        if plan["heartbeats"]:
            for rank in list(live):
                if rank not in trainer.left:
                    self._heartbeat(trainer, rank)
                    if self.rng.random() < 0.1:
                        self._heartbeat(trainer, rank)
        self._exit(trainer, live)

    def _advance(self, trainer: Trainer, live: dict[int, Json], plan: Json) -> None:
        whole = len(live) == trainer.ranks
        terminated = any(gets_term(pod) for pod in live.values())
        asked = (
            trainer.asked is not None and trainer.asked.then_exit and trainer.obeys
        ) or terminated
        now = self.clock.seconds
        if trainer.step >= trainer.total:
            if trainer.durable < trainer.total:
                self._save(trainer)
            trainer.finished = True
            return
        if not whole:
            return
        if trainer.saving_until is not None:
            if now >= trainer.saving_until:
                trainer.saving_until = None
                self._save(trainer)
                trainer.saved_for_notice = True
            return
        if trainer.saved_for_notice:
            return
        if asked:
            trainer.saving_until = now + trainer.save_seconds
            return
        trainer.step += 1
        if trainer.step == plan["fail_at"].get(trainer.attempt):
            pod = live[self.rng.choice(sorted(live))]
            self.user_errors[trainer.job] = self.user_errors.get(trainer.job, 0) + 1
            self._pod_status(pod, "Failed", 1)
        elif trainer.step % 10 == 0:
            self._save(trainer)

    def _save(self, trainer: Trainer) -> None:
        """A commit; a writer that has been overtaken commits nothing."""
        newest = max((t.attempt for (job, _), t in self.trainers.items() if job == trainer.job))
        if trainer.attempt == newest:
            trainer.durable = trainer.step
            self.durable[trainer.job] = trainer.step

    def _heartbeat(self, trainer: Trainer, rank: int) -> None:
        if self.clock.seconds < self.down_until:
            return
        heartbeat = Heartbeat(
            attempt=trainer.attempt,
            rank=rank,
            step=trainer.step,
            total_steps=trainer.total,
            durable=Durable(trainer.durable, "") if trainer.durable else None,
            finished=trainer.finished,
        )
        reply = self.endpoint.answer(tokens.Bearer(trainer.uid, trainer.attempt), heartbeat)
        if reply.status == 200:
            answer = Answer.from_wire(json.loads(reply.body))
            trainer.asked = answer.save
            if trainer.saved_for_notice:
                trainer.acknowledged_in = self.crashes
            if trainer.finished:
                trainer.done.add(rank)
        elif reply.status == 409:
            trainer.stale = True

    def _exit(self, trainer: Trainer, live: dict[int, Json]) -> None:
        for rank, pod in sorted(live.items()):
            terminated = gets_term(pod)
            told = not self.plans[trainer.job]["heartbeats"] or rank in trainer.done
            if trainer.finished and (told or terminated):
                code = 0
            elif trainer.saved_for_notice:
                code = 143
            elif trainer.stale:
                code = 1
            elif terminated and len(live) < trainer.ranks:
                code = 143
            elif len(live) < trainer.ranks and not trainer.finished and self.rng.random() < 0.1:
                code = 1  # it waited in vain for a peer
            else:
                continue
            if self.rng.random() < 0.6:
                trainer.left.add(rank)
                self._pod_status(pod, "Succeeded" if code == 0 else "Failed", code)
