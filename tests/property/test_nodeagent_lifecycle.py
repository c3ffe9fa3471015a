"""A world of pods in memory, agents that forget everything, and the decisions between them.

The machine plays containers, shims, the API server and the reader of records; each rule lets
something happen, and `decide` runs again on what can then be seen.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from clusterops.nodeagent import gpus, pod_status
from clusterops.nodeagent.admission import Failure, Rules, wanted_gpus
from clusterops.nodeagent.observation import Observed, Run, RunState
from clusterops.nodeagent.pod_lifecycle import (
    Admit,
    Delete,
    EndLeftovers,
    Fail,
    Forget,
    Release,
    Start,
    Stop,
    decide,
    decide_orphan,
    final_phase,
)

GPUS = gpus.simulated(4)
RULES = Rules(None, len(GPUS))


@dataclass
class Record:
    """What survives an agent: pod.json and the run folders of one pod."""

    devices: tuple[str, ...] = ()
    failure: Failure | None = None
    ended: bool = False
    runs: dict[str, list[Run]] = field(default_factory=dict)
    starts: dict[tuple[str, int], int] = field(default_factory=dict)


class PodsOfOneNode(RuleBasedStateMachine):
    """`objects`: the API server's pods by uid. `records`: the node's memory by uid."""

    def __init__(self) -> None:
        super().__init__()
        self.objects: dict[str, dict[str, Any]] = {}
        self.records: dict[str, Record] = {}
        self.final: dict[str, str] = {}
        self.created = 0

    # What users and the world do

    @rule(
        policy=st.sampled_from(["Never", "OnFailure", "Always"]),
        inits=st.integers(0, 2),
        mains=st.integers(1, 2),
        wanted=st.integers(0, 3),
        deadline=st.booleans(),
    )
    def create(self, policy: str, inits: int, mains: int, wanted: int, deadline: bool) -> None:
        if len(self.objects) >= 4:
            return
        uid = f"u{self.created}"
        self.created += 1
        limits = {"resources": {"limits": {"nvidia.com/gpu": str(wanted)}}}
        containers: list[dict[str, Any]] = [{"name": f"m{number}"} for number in range(mains)]
        containers[0].update(limits)
        spec: dict[str, Any] = {"restartPolicy": policy, "containers": containers}
        spec["initContainers"] = [{"name": f"i{number}"} for number in range(inits)]
        if deadline:
            spec["activeDeadlineSeconds"] = 50
        metadata = {"name": f"p{self.created % 2}", "namespace": "ns", "uid": uid}
        self.objects[uid] = {"metadata": metadata, "spec": spec, "status": {}}

    @precondition(lambda self: self.objects)
    @rule(choice=st.data(), grace=st.integers(0, 60))
    def delete(self, choice: st.DataObject, grace: int) -> None:
        uid = choice.draw(st.sampled_from(sorted(self.objects)))
        if grace == 0:
            del self.objects[uid]
            return
        metadata = self.objects[uid]["metadata"]
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        before = metadata.get("deletionGracePeriodSeconds", grace)
        metadata["deletionGracePeriodSeconds"] = min(before, grace)

    @precondition(lambda self: self.running())
    @rule(choice=st.data(), code=st.sampled_from([0, 1, 143]), lost=st.booleans())
    def something_ends(self, choice: st.DataObject, code: int, lost: bool) -> None:
        uid, container = choice.draw(st.sampled_from(self.running()))
        runs = self.records[uid].runs[container]
        if lost:
            runs[-1] = replace(runs[-1], state=RunState.LOST)
        else:
            runs[-1] = replace(
                runs[-1], state=RunState.EXITED, exit_code=code, ended_seconds_ago=1000.0
            )

    @precondition(lambda self: self.stopping())
    @rule()
    def graces_run_out(self) -> None:
        for uid, container in self.stopping():
            runs = self.records[uid].runs[container]
            runs[-1] = replace(
                runs[-1], state=RunState.EXITED, exit_code=137, ended_seconds_ago=1000.0
            )

    # What the agent does; it remembers nothing between two calls

    @rule(choice=st.data(), old=st.booleans(), crash_after=st.integers(0, 3), hears=st.booleans())
    def agent_looks(self, choice: st.DataObject, old: bool, crash_after: int, hears: bool) -> None:
        """It may crash after a few actions, and the API server may not hear it."""
        uids = sorted({*self.objects, *self.records})
        if not uids:
            return
        uid = choice.draw(st.sampled_from(uids))
        self.settle(uid, age=1000.0 if old else 0.0, crash_after=crash_after, hears=hears)

    def settle(self, uid: str, *, age: float, crash_after: int = 10**6, hears: bool = True) -> None:
        left = crash_after
        for _ in range(50):
            pod = self.objects.get(uid)
            observed = self.observe(uid, age)
            if pod is None:
                actions = decide_orphan(observed).actions if uid in self.records else ()
            else:
                actions = decide(pod, observed, RULES).actions
            todo = [action for action in actions if action != Delete()]
            progressed = False
            for action in todo:
                progressed |= self.apply(uid, action)
                left -= 1
                if left < 0:
                    return
            if not progressed:
                break
        else:
            raise AssertionError(f"deciding about {uid} never ends")
        if not hears or pod is None:
            return
        self.report(uid, age)
        if Delete() in actions:
            assert final_phase(pod, self.observe(uid, age)) or uid not in self.records
            del self.objects[uid]

    def apply(self, uid: str, action: object) -> bool:
        match action:
            case Admit():
                taken = [r.devices for r in self.records.values() if not r.ended]
                devices = gpus.assign(wanted_gpus(self.objects[uid]), GPUS, taken)
                if devices is None:
                    return False
                self.records[uid] = Record(devices)
            case Fail(failure):
                self.records.setdefault(uid, Record()).failure = failure
            case Start(container, attempt):
                record = self.records[uid]
                runs = record.runs.setdefault(container, [])
                assert not any(run.alive for run in runs), "two runs of one container at once"
                assert attempt == len(runs)
                runs.append(Run(attempt, RunState.RUNNING))
                record.starts[container, attempt] = record.starts.get((container, attempt), 0) + 1
            case Stop(container, attempt, grace):
                runs = self.records[uid].runs[container]
                before = runs[attempt].kill_in_seconds
                assert before is None or grace < before, "a grace was lengthened"
                runs[attempt] = replace(runs[attempt], kill_in_seconds=grace)
            case EndLeftovers(container, attempt):
                runs = self.records[uid].runs[container]
                runs[attempt] = replace(
                    runs[attempt], state=RunState.EXITED, exit_code=137, ended_seconds_ago=1000.0
                )
            case Release():
                assert not self.observe(uid, 0.0).alive(), "GPUs of a living pod were freed"
                self.records[uid].ended = True
            case Forget():
                assert not self.observe(uid, 0.0).alive(), "a living pod was forgotten"
                del self.records[uid]
            case _:
                raise AssertionError(action)
        return True

    def report(self, uid: str, age: float) -> None:
        pod = self.objects[uid]
        status = pod_status.build(pod, self.observe(uid, age), node_ip="1", now="t")
        pod["status"] = {**pod["status"], **status}
        assert pod_status.changes(pod, status) == {}, "a status that is never finished"
        if status["phase"] in ("Succeeded", "Failed"):
            assert self.final.setdefault(uid, status["phase"]) == status["phase"]

    # Looking

    def observe(self, uid: str, age: float) -> Observed:
        record = self.records.get(uid)
        if record is None:
            return Observed()
        runs = {name: tuple(found) for name, found in record.runs.items()}
        return Observed(True, "t", record.ended, record.failure, age, runs)

    def running(self) -> list[tuple[str, str]]:
        return [
            (uid, container)
            for uid, record in self.records.items()
            for container, runs in record.runs.items()
            if runs and runs[-1].state is RunState.RUNNING
        ]

    def stopping(self) -> list[tuple[str, str]]:
        return [
            (uid, container)
            for uid, container in self.running()
            if self.records[uid].runs[container][-1].kill_in_seconds is not None
        ]

    @invariant()
    def no_gpu_has_two_pods(self) -> None:
        held = [d for record in self.records.values() if not record.ended for d in record.devices]
        assert len(held) == len(set(held))

    @invariant()
    def what_may_not_restart_starts_once(self) -> None:
        for uid, record in self.records.items():
            assert all(number == 1 for number in record.starts.values())
            pod = self.objects.get(uid)
            if pod is not None and pod["spec"]["restartPolicy"] == "Never":
                assert all(len(runs) == 1 for runs in record.runs.values())

    @invariant()
    def init_containers_come_first(self) -> None:
        for uid, record in self.records.items():
            pod = self.objects.get(uid)
            if pod is None or not any(name.startswith("m") for name in record.runs):
                continue
            for init in pod["spec"]["initContainers"]:
                assert record.runs[init["name"]][-1].exit_code == 0

    def teardown(self) -> None:
        """When everybody is deleted and graces run out, nothing is left anywhere."""
        for uid in sorted(self.objects):
            metadata = self.objects[uid]["metadata"]
            metadata.update(deletionTimestamp="t", deletionGracePeriodSeconds=1)
        for _ in range(3):
            for uid in sorted({*self.objects, *self.records}):
                self.settle(uid, age=0.0)
            self.graces_run_out_now()
        assert self.objects == {}
        assert self.records == {}

    def graces_run_out_now(self) -> None:
        for uid, container in self.stopping():
            runs = self.records[uid].runs[container]
            runs[-1] = replace(runs[-1], state=RunState.EXITED, exit_code=137)


TestPodsOfOneNode = PodsOfOneNode.TestCase
TestPodsOfOneNode.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
