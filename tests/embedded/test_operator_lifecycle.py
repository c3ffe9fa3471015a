"""The operator with the real API server and the real queue: a job's life as users see it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.embedded import EmbeddedServer
from support.operator_embedded import Cluster, cluster, running_operator

from clusterops.api import names
from clusterops.api.heartbeat import Durable, Heartbeat
from clusterops.kube.errors import NotFound

pytestmark = pytest.mark.embedded


@pytest.fixture
async def made(embedded_server: EmbeddedServer, tmp_path: Path) -> AsyncIterator[Cluster]:
    async with cluster(embedded_server, tmp_path) as made, running_operator(made.config):
        yield made
        for job in (await made.client.list(names.TRAINING_JOBS, made.namespace))[0]:
            await _delete(made, job["metadata"]["name"])


async def _delete(made: Cluster, job: str) -> None:
    await made.client.delete(names.TRAINING_JOBS, made.namespace, job)

    async def gone() -> bool:
        await made.exit_all(await made.pods(job), 0)
        await made.finish_deletions(job)
        try:
            await made.job(job)
        except NotFound:
            return True
        return False

    await made.until(f"{job} to be gone", gone)


async def test_a_job_is_admitted_runs_reports_and_succeeds(made: Cluster) -> None:
    await made.submit("plain")
    pods = await made.run_pods("plain", 2)
    await made.until_phase("plain", "Running")
    environment = {e["name"]: e["value"] for e in pods[0]["spec"]["containers"][0]["env"]}
    assert environment[names.ENV_MASTER_ADDR] == "127.0.0.1"
    assert int(environment[names.ENV_MASTER_PORT]) == (await made.status("plain"))["masterPort"]
    for rank in (0, 1):
        beat = Heartbeat(1, rank, 5, total_steps=5, durable=Durable(5, ""), finished=True)
        status, answer = await made.heartbeat("plain", beat)
        assert status == 200
        assert answer is not None
        assert answer.save is None
    await made.exit_all(pods, 0)
    status = await made.until_phase("plain", "Succeeded")
    assert status["attempts"][0]["cause"] == "Completed"
    assert status["attempts"][0]["lostSteps"] == 0
    assert status["progress"]["step"] == 5
    conditions = {c["type"]: c["status"] for c in status["conditions"]}
    assert conditions["Succeeded"] == "True"

    async def let_go() -> bool:
        workload = await made.workload("plain")
        finished = [c for c in workload["status"]["conditions"] if c["type"] == "Finished"]
        return bool(finished) and not workload["metadata"].get("finalizers")

    await made.until("the Workload to be finished", let_go)


async def test_a_victim_saves_gives_its_quota_back_and_resumes(made: Cluster) -> None:
    await made.submit("victim")
    pods = await made.run_pods("victim", 2)
    await made.until_phase("victim", "Running")
    await made.heartbeat("victim", Heartbeat(1, 0, 100, durable=Durable(50, "")))
    await made.submit("urgent", priorityClassName="high", gpus=4, replicas=1)
    status = await made.until_phase("victim", "Checkpointing")
    assert status["graceDeadline"]

    async def asked() -> object:
        _, answer = await made.heartbeat("victim", Heartbeat(1, 0, 101, durable=Durable(50, "")))
        return answer and answer.save

    save = await made.until("the request to save", asked)
    assert save.then_exit
    assert 0 < save.remaining_seconds <= 20
    assert (await made.workload("urgent"))["status"].get("admission") is None
    await made.heartbeat("victim", Heartbeat(1, 0, 101, durable=Durable(101, "")))
    await made.exit_all(pods, 143)
    urgent = await made.run_pods("urgent", 1)
    status = await made.status("victim")
    assert status["attempts"][0]["cause"] == "Preempted"
    assert status["attempts"][0]["lostSteps"] == 0
    assert status["counts"]["preemptions"] == 1
    stale, _ = await made.heartbeat("victim", Heartbeat(1, 0, 102))
    assert stale == 409
    await made.exit_all(urgent, 0)
    await made.until_phase("urgent", "Succeeded")
    again = await made.run_pods("victim", 2)
    assert {pod["metadata"]["labels"][names.LABEL_ATTEMPT] for pod in again} == {"2"}
    await made.exit_all(again, 0)
    await made.until_phase("victim", "Succeeded")
    kept = await made.pods("victim")
    assert len(kept) == 4, "terminal pods of the last attempts stay for their logs"


async def test_a_preemption_whose_reason_has_gone_is_cancelled_and_the_job_goes_on(
    made: Cluster,
) -> None:
    await made.submit("victim")
    pods = await made.run_pods("victim", 2)
    await made.until_phase("victim", "Running")
    await made.heartbeat("victim", Heartbeat(1, 0, 10))
    await made.submit("urgent", priorityClassName="high", gpus=4, replicas=1)
    await made.until_phase("victim", "Checkpointing")
    await _delete(made, "urgent")
    await made.until_phase("victim", "Running")
    workload = await made.workload("victim")
    evicted = next(c for c in workload["status"]["conditions"] if c["type"] == "Evicted")
    assert (evicted["status"], evicted["reason"]) == ("False", "PreemptionCancelled")
    assert (await made.status("victim"))["attempt"] == 1
    await made.exit_all(pods, 0)
    status = await made.until_phase("victim", "Requeued", "Succeeded", "Admitted", "Starting")
    assert status["attempts"][0]["cause"] == "Evicted", "exit 0 after a notice is no completion"


async def test_suspend_waits_for_the_save_then_deactivates_and_resume_goes_on(
    made: Cluster,
) -> None:
    await made.submit("sleeper")
    pods = await made.run_pods("sleeper", 2)
    await made.until_phase("sleeper", "Running")
    await made.heartbeat("sleeper", Heartbeat(1, 0, 10))
    await made.edit("sleeper", suspend=True)
    await made.until_phase("sleeper", "Checkpointing")
    assert (await made.workload("sleeper"))["spec"]["active"] is True
    await made.heartbeat("sleeper", Heartbeat(1, 0, 11, durable=Durable(11, "")))
    await made.exit_all(pods, 143)

    async def inactive() -> bool:
        return (await made.workload("sleeper"))["spec"]["active"] is False

    await made.until("the Workload to be deactivated", inactive)
    await made.until_phase("sleeper", "Suspended")
    await made.edit("sleeper", suspend=False)
    again = await made.run_pods("sleeper", 2)
    await made.exit_all(again, 0)
    await made.until_phase("sleeper", "Succeeded")


async def test_a_failing_job_uses_up_its_budget_and_only_then_fails(made: Cluster) -> None:
    await made.submit("broken", replicas=1, backoffLimit=0)
    pods = await made.run_pods("broken", 1)
    await made.until_phase("broken", "Running")
    await made.exit_all(pods, 3)
    status = await made.until_phase("broken", "Failed")
    assert status["reason"] == "UserError"
    assert "exited with code 3" in status["message"]
    assert status["counts"]["userErrors"] == 1


async def test_a_job_without_queue_or_class_or_hope_says_what_it_waits_for(made: Cluster) -> None:
    await made.submit("lost", queueName="nowhere")
    await made.submit("rankless", priorityClassName="nonesuch")
    await made.submit("greedy", gpus=8, replicas=2)
    for job, reason, word in (
        ("lost", "QueueNotFound", "nowhere"),
        ("rankless", "PriorityClassNotFound", "nonesuch"),
        ("greedy", "NeverFits", "at most 4"),
    ):

        async def told(job: str = job, reason: str = reason) -> bool:
            return (await made.status(job)).get("reason") == reason

        await made.until(f"{job} to say {reason}", told)
        assert word in (await made.status(job))["message"]
    await made.edit("greedy", replicas=1, template=(await made.job("greedy"))["spec"]["template"])


async def test_events_tell_each_transition(made: Cluster) -> None:
    await made.submit("told", replicas=1)
    pods = await made.run_pods("told", 1)
    await made.until_phase("told", "Running")
    await made.exit_all(pods, 0)
    await made.until_phase("told", "Succeeded")

    async def reasons() -> set[str]:
        events, _ = await made.client.list(names.EVENTS, made.namespace)
        found = {e["reason"] for e in events if e["involvedObject"]["name"] == "told"}
        return found if {"Admitted", "Running", "Completed", "Succeeded"} <= found else set()

    await made.until("all events", reasons)


async def test_a_restarted_operator_goes_on_with_a_window_that_is_open(
    embedded_server: EmbeddedServer, tmp_path: Path
) -> None:
    async with cluster(embedded_server, tmp_path) as made:
        async with running_operator(made.config):
            await made.submit("victim")
            pods = await made.run_pods("victim", 2)
            await made.until_phase("victim", "Running")
            await made.heartbeat("victim", Heartbeat(1, 0, 10))
            await made.edit("victim", suspend=True)
            before = await made.until_phase("victim", "Checkpointing")
        async with running_operator(made.config):

            async def asked() -> object:
                _, answer = await made.heartbeat("victim", Heartbeat(1, 0, 11))
                return answer and answer.save

            await made.until("the request to save", asked)
            status = await made.status("victim")
            assert status["graceDeadline"] == before["graceDeadline"]
            await made.heartbeat("victim", Heartbeat(1, 0, 11, durable=Durable(11, "")))
            await made.exit_all(pods, 143)
            await made.until_phase("victim", "Suspended")
            assert (await made.status("victim"))["attempts"][0]["lostSteps"] == 0
            await _delete(made, "victim")


async def test_metrics_are_for_users_of_the_api_server(made: Cluster) -> None:
    async def answers() -> bool:
        return (await made.scrape(made.server.token))[0] == 200

    await made.until("the endpoint to answer", answers)
    status, text = await made.scrape(made.server.token)
    assert "clusterops_operator_leading" in text
    for token in ("", "guessed"):
        status, text = await made.scrape(token)
        assert (status, "clusterops_" in text) == (401, False)
