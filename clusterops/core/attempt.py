"""A job with an open attempt: start its pods, watch them, and end them in order.

While the attempt has no cause it goes on; the first thing that ends it puts cause and deadline
into status. From then on the pods are ended, and only when none is alive is the attempt closed.
"""

from datetime import timedelta
from typing import NamedTuple

from clusterops.api.reasons import Cause, Phase, WaitReason
from clusterops.core import actions, edits, exits, notice, pods, progress, status, waiting
from clusterops.core import workload as workloads
from clusterops.core.conditions import seconds_since
from clusterops.core.exits import Ending
from clusterops.core.observed import Attempt, JobStatus, Preemptor, Workload
from clusterops.core.observed_pods import Pod
from clusterops.core.terminating import terminate
from clusterops.core.view import View
from clusterops.core.waiting import Why


class _Found(NamedTuple):
    """Why the attempt ends. `certain` is False when it follows from something being absent."""

    ending: Ending
    certain: bool = True


def decide(view: View) -> list[actions.Action]:
    """The next step of the open attempt."""
    attempt = view.job.status.open_attempt
    assert attempt is not None, "decided by lifecycle"
    if attempt.cause is not None:
        return _end(view, attempt)
    found = _reason_to_end(view, attempt)
    if found is None:
        return _go_on(view, attempt)
    if found.ending.cause is Cause.COMPLETED:
        return _close(view, found.ending)
    after = status.noticed(view.job, view.observed, found.ending, view.now, view.settings)
    return [actions.WriteStatus(after, found.certain)]


# Going on


def _go_on(view: View, attempt: Attempt) -> list[actions.Action]:
    own, expected = _own(view, attempt), _expected(view)
    if view.job.status.phase is Phase.ADMITTED:
        return _create(view, attempt, exits.missing_ranks(own, expected))
    steps: list[actions.Action] = []
    workload = view.observed.workload
    if attempt.started_at is None and not all(pod.ready for pod in own):
        why = waiting.while_starting(view.job, own, expected, view.now, view.settings)
        after = status.under_way(view.job, view.observed, Phase.STARTING, why, view.now)
    else:
        why = Why(WaitReason.NONE, edits.waiting_for_next_attempt(view.job, workload, own))
        after = status.under_way(view.job, view.observed, Phase.RUNNING, why, view.now)
        if workload is not None and not workload.is_true("PodsReady"):
            steps.append(actions.SetPodsReady())
    if workload is not None and view.observed.priority is not None:
        patch = workloads.update_patch(view.job, workload, view.observed.priority)
        if patch:
            steps.append(actions.UpdateWorkload("the class or its value changed", patch))
    write, wake = _write_progress(view, after)
    return [*write, *steps, *_clear_old(view, attempt), *wake, *_wakes(view, attempt)]


def _create(view: View, attempt: Attempt, missing: list[int]) -> list[actions.Action]:
    """All that is missing, then phase Starting.

    Secret and Service come first: a pod that mounts what does not exist waits for long.
    """
    number = attempt.number
    foreign = [pod for pod in view.alive if pod.attempt != number]
    if foreign:
        grace = max(1, round(view.settings.short_grace_seconds))
        ending: list[actions.Action] = view.forget_lost() + [
            actions.DeletePod(pod.name, pod.metadata.uid, grace, "its attempt is over")
            for pod in foreign
            if not pod.metadata.deleting
        ]
        return [*ending, actions.Wake(1.0, "pods of an earlier attempt")]
    steps: list[actions.Action] = []
    if missing and view.settings.agent_url:
        steps.append(actions.CreateSecret(number))
    if missing and view.settings.runtime == "containers":
        steps.append(actions.CreateService(pods.desired_service(view.job)))
    for rank in missing:
        body = pods.desired_pod(view.job, view.observed, number, rank, view.settings)
        steps.append(actions.CreatePod(rank, body))
    # From here on a pod that is not there was removed by somebody.
    why = waiting.while_starting(view.job, (), _expected(view), view.now, view.settings)
    started = status.under_way(view.job, view.observed, Phase.STARTING, why, view.now)
    return [*steps, *view.write(started)]


def _write_progress(
    view: View, after: JobStatus
) -> tuple[list[actions.Action], list[actions.Action]]:
    """The status write and the next wake: steps alone are written rarely, all else at once."""
    before = view.job.status
    if before == after:
        return [], []
    due = progress.seconds_until_due(view.job, view.now, view.settings)
    finished = exits.all_finished(view.observed.reports, _expected(view))
    if due <= 0 or finished or not status.same_but_progress(before, after):
        return view.write(after), []
    return [], [actions.Wake(due, "progress is written once a minute")]


def _clear_old(view: View, attempt: Attempt) -> list[actions.Action]:
    oldest = attempt.number - view.settings.kept_pods_attempts
    return [
        actions.DeletePod(pod.name, pod.metadata.uid, 0, "of an attempt too old to be kept")
        for pod in sorted(view.observed.pods, key=lambda pod: pod.name)
        if not pod.alive and pod.attempt <= oldest and not pod.metadata.deleting
    ]


def _wakes(view: View, attempt: Attempt) -> list[actions.Action]:
    wakes: list[actions.Action] = []
    until_lost = view.until_node_lost()
    if until_lost is not None:
        wakes.append(actions.Wake(until_lost, "a node that is not Ready"))
    limit = view.job.spec.active_deadline_seconds
    if limit is not None and attempt.started_at is not None:
        left = limit - _ran(view, attempt)
        wakes.append(actions.Wake(max(0.05, left + 0.05), "its activeDeadlineSeconds"))
    if attempt.started_at is None:
        begun = seconds_since(view.job.status.attempt_begun_at, view.now)
        wakes.extend(
            actions.Wake(bound - begun + 0.1, "its start")
            for bound in (view.settings.start_failed_seconds, view.settings.stuck_seconds)
            if begun < bound
        )
    return wakes


# The reason to end


def _reason_to_end(view: View, attempt: Attempt) -> _Found | None:
    own, expected = _own(view, attempt), _expected(view)
    if view.observed.refused and view.job.status.phase is Phase.ADMITTED:
        return _Found(Ending(Cause.START_FAILED, exits.plain(view.observed.refused)))
    if exits.all_succeeded(own, expected):
        return _Found(_success(view, attempt, expected))
    failure = exits.first_failure(own, view.observed)
    if failure is not None:
        # A rank fails because its peer was deleted more often than the other way round.
        return _pods_lost(view, own, expected) or _Found(_failure(view, attempt, own, failure))
    return (
        _quota_lost(view)
        or _user_wish(view)
        or _pods_lost(view, own, expected)
        or _node_lost(view, own)
        or _time_up(view, attempt, own)
    )


def _success(view: View, attempt: Attempt, expected: int) -> Ending:
    """All ranks exited 0. After a notice that was withdrawn that alone proves nothing."""
    if view.job.status.reprieved_attempt == attempt.number and not _finished(view, expected):
        return Ending(Cause.EVICTED, "it left for a notice that was withdrawn")
    return Ending(Cause.COMPLETED, Cause.COMPLETED.sentence)


def _failure(view: View, attempt: Attempt, own: tuple[Pod, ...], failure: Ending) -> Ending:
    """A rank failed. One that left as it had been asked to, by a notice since withdrawn, did not."""
    creating = view.job.status.phase is Phase.ADMITTED
    if creating and exits.missing_ranks(own, _expected(view)):
        return Ending(Cause.EVICTED, f"not all of its pods were there: {failure.message}")
    failed = [pod for pod in own if pod.status.phase == "Failed"]
    if view.job.status.reprieved_attempt == attempt.number and all(
        exits.left_as_asked(pod) for pod in failed
    ):
        return Ending(Cause.EVICTED, "it left for a notice that was withdrawn")
    return failure


def _quota_lost(view: View) -> _Found | None:
    workload = view.observed.workload
    if workload is None:
        return _Found(Ending(Cause.EVICTED, "its Workload was deleted"), certain=False)
    if workload.metadata.deleting:
        return _Found(Ending(Cause.EVICTED, "its Workload is being deleted"))
    if workload.evicted:
        return _Found(eviction_ending(workload, view.observed.preemptor))
    if not workload.reserved or workload.finished:
        return _Found(Ending(Cause.EVICTED, "its quota was taken away without notice"))
    return None


def eviction_ending(workload: Workload, preemptor: Preemptor | None = None) -> Ending:
    """The cause that an Evicted condition stands for; a preemptor that is known is named."""
    evicted = workload.condition("Evicted")
    reason = evicted.reason if evicted is not None else ""
    message = evicted.message if evicted is not None else ""
    cause = {
        "Preempted": Cause.PREEMPTED,
        "NodeFailures": Cause.NODE_FAULT,
        "Suspended": Cause.SUSPENDED,
        "Cancelled": Cause.CANCELLED,
    }.get(reason, Cause.EVICTED)
    if cause is Cause.PREEMPTED:
        preempted = workload.condition("Preempted")
        message = preempted.message if preempted is not None and preempted.true else message
        if preemptor is not None and preemptor.name:
            # Kueue's message names it by uid alone; the Workload's conditions keep that message.
            message = f"{preemptor.name} needs its GPUs and goes first"
    return Ending(cause, message or reason or cause.sentence)


def _user_wish(view: View) -> _Found | None:
    job = view.job
    if job.metadata.deleting:
        return _Found(Ending(Cause.CANCELLED, "its object was deleted"))
    if job.spec.stop is not None:
        return _Found(Ending(Cause.CANCELLED, Cause.CANCELLED.sentence))
    if job.spec.suspend:
        return _Found(Ending(Cause.SUSPENDED, Cause.SUSPENDED.sentence))
    return None


def _pods_lost(view: View, own: tuple[Pod, ...], expected: int) -> _Found | None:
    deleted = [pod.name for pod in own if pod.metadata.deleting]
    if deleted:
        return _Found(Ending(Cause.EVICTED, f"{', '.join(deleted)} was deleted"))
    missing = exits.missing_ranks(own, expected)
    # While the phase is Admitted they have not all been created; later somebody removed them.
    if missing and view.job.status.phase is not Phase.ADMITTED:
        ranks = ", ".join(map(str, missing[:10]))
        return _Found(Ending(Cause.EVICTED, f"the pod of rank {ranks} is gone"), certain=False)
    return None


def _node_lost(view: View, own: tuple[Pod, ...]) -> _Found | None:
    for pod in own:
        if not pod.alive:
            continue
        why = view.lost(pod)
        if why:
            return _Found(Ending(Cause.NODE_LOST, f"rank {pod.rank}: {why}"), certain=False)
        node = view.observed.nodes.get(pod.spec.node_name)
        if node is not None and node.faulty:
            detail = f"rank {pod.rank}: a fault was found on {pod.spec.node_name}"
            return _Found(Ending(Cause.NODE_FAULT, detail))
    return None


def _time_up(view: View, attempt: Attempt, own: tuple[Pod, ...]) -> _Found | None:
    limit = view.job.spec.active_deadline_seconds
    if limit is not None and attempt.started_at is not None and _ran(view, attempt) >= limit:
        return _Found(
            Ending(
                Cause.DEADLINE_EXCEEDED, f"it ran for {limit} seconds, its activeDeadlineSeconds"
            )
        )
    begun = seconds_since(view.job.status.attempt_begun_at, view.now)
    if attempt.started_at is None and begun >= view.settings.start_failed_seconds:
        refused = exits.cannot_start(own)
        if refused is not None:
            return _Found(refused)
    return None


# Ending


def _end(view: View, attempt: Attempt) -> list[actions.Action]:
    workload = view.observed.workload
    taken_back = notice.withdrawn(view.job, attempt, view.observed)
    if taken_back and workload is not None:
        if workload.evicted:
            preempted = attempt.cause is Cause.PREEMPTED
            reason = notice.PREEMPTION_CANCELLED if preempted else notice.EVICTION_CANCELLED
            return [actions.CancelEviction(reason, f"The job goes on: {taken_back}")]
        return view.write(status.withdrawn(view.job, view.observed, taken_back, view.now))
    if attempt.cause is Cause.USER_ERROR:
        # A program that lost its GPU fails before anybody has said why.
        faulty = notice.blamed_nodes(view.job, view.observed)
        if faulty:
            return view.write(status.blamed_on_fault(view.job, faulty))
        if not view.alive and _unsettled(view, attempt):
            return [actions.Wake(0.5, "the health daemon's word on a node where a rank failed")]
    if not view.alive and _taint_due(view, attempt):
        return [actions.Wake(0.5, "the taint on a faulty node, or the job would start there again")]
    evict = _evict(attempt, workload)
    if not view.alive:
        return evict or _close(view, _final_ending(view, attempt))
    plan = notice.plan(view.job, attempt, view.observed, view.now, view.settings)
    deletions = view.forget_lost()
    if deletions and attempt.cause is Cause.USER_ERROR:
        # The ranks on living nodes failed first, for want of those on the dead one.
        return view.write(status.blamed_on_node(view.job, deletions))
    forgotten = {deletion.name for deletion in deletions if isinstance(deletion, actions.DeletePod)}
    if plan.terminate_grace is not None:
        left = [pod for pod in view.alive if pod.name not in forgotten]
        deletions += terminate(view, left, plan.terminate_grace, plan.why)
    why = Why.of(plan.reason, attempt.message or "")
    why = waiting.while_ending(why, view.job, view.observed.pods, view.now, view.settings)
    after = status.under_way(view.job, view.observed, Phase.CHECKPOINTING, why, view.now)
    recheck = min(plan.recheck_seconds, view.until_node_lost() or plan.recheck_seconds)
    wake = actions.Wake(max(0.05, recheck + 0.01), f"its window: {plan.why}")
    return [*evict, *_write_ending(view, after), *deletions, wake]


def _taint_due(view: View, attempt: Attempt) -> bool:
    """Whether a node that is to blame is about to be tainted: budgets may keep it in use."""
    if attempt.cause is not Cause.NODE_FAULT:
        return False
    tainted = {node.metadata.name for node in notice.faulty_nodes(view.job, view.observed)}
    words = view.observed.words
    open_to_jobs = [
        name
        for name in attempt.faulty_nodes or ()
        if name not in tainted and name in words and words[name].faulty
    ]
    waited = seconds_since(view.job.status.grace_deadline, view.now)
    return bool(open_to_jobs) and waited < view.settings.taint_seconds


def _unsettled(view: View, attempt: Attempt) -> bool:
    """Whether it may yet turn out that a rank failed because its GPU did."""
    if not workloads.gpus_per_pod(view.job):
        return False
    settings = view.settings
    waited = seconds_since(view.job.status.grace_deadline, view.now)
    if waited >= settings.fault_word_seconds:
        return False
    for pod in _own(view, attempt):
        word = view.observed.words.get(pod.spec.node_name)
        failed_at = exits.failed_at(pod)
        if word is None or failed_at is None:
            continue
        # Both times are of the node's own clock.
        settled_at = failed_at + timedelta(seconds=settings.fault_settle_seconds)
        if word.heard_at is None or word.heard_at < settled_at:
            return True
    return False


def _write_ending(view: View, after: JobStatus) -> list[actions.Action]:
    """In the window a durable save is written at once: a restarted operator may need it."""
    before = view.job.status
    durable = [s.progress.durable_step if s.progress else None for s in (before, after)]
    finished = exits.all_finished(view.observed.reports, _expected(view))
    if status.same_but_progress(before, after) and durable[0] == durable[1] and not finished:
        return []
    return view.write(after)


def _evict(attempt: Attempt, workload: Workload | None) -> list[actions.Action]:
    """The queue must know that the quota is on its way back before the attempt is closed."""
    if workload is None or workload.metadata.deleting or workload.finished:
        return []
    if workload.status.admission is None or workload.evicted:
        return []
    assert attempt.cause is not None, "only called for an attempt that ends"
    reason = (
        "NodeFailures" if attempt.cause in (Cause.NODE_FAULT, Cause.NODE_LOST) else attempt.cause
    )
    return [actions.EvictWorkload(str(reason), attempt.message or attempt.cause.sentence)]


def _final_ending(view: View, attempt: Attempt) -> Ending:
    expected = _expected(view)
    if exits.all_succeeded(_own(view, attempt), expected) and _finished(view, expected):
        return Ending(Cause.COMPLETED, Cause.COMPLETED.sentence)
    assert attempt.cause is not None, "only called for an attempt that ends"
    return Ending(attempt.cause, attempt.message or attempt.cause.sentence)


def _close(view: View, ending: Ending) -> list[actions.Action]:
    after = status.closed(view.job, view.observed, ending, view.now, view.settings)
    return [actions.WriteStatus(after, certain=False)]


def _finished(view: View, expected: int) -> bool:
    """True when all ranks said so, to this operator or, by the step they reached, to an earlier one."""
    if exits.all_finished(view.observed.reports, expected):
        return True
    known = view.job.status.progress
    if known is None or known.total_steps is None or known.step is None:
        return False
    return known.step >= known.total_steps


def _own(view: View, attempt: Attempt) -> tuple[Pod, ...]:
    own = [pod for pod in view.observed.pods if pod.attempt == attempt.number]
    return tuple(sorted(own, key=lambda pod: pod.rank))


def _expected(view: View) -> int:
    return notice.gang_size(view.job, view.observed.workload)


def _ran(view: View, attempt: Attempt) -> float:
    return view.job.status.ran_seconds + seconds_since(attempt.started_at, view.now)
