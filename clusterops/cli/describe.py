"""`describe`: everything about one job on one page."""

from typing import Any

from clusterops.cli.options import Context, Format, Job, Kubeconfig, Namespace, Output


def describe(
    job: Job,
    output: Output = Format.TABLE,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Namespace = None,
) -> None:
    """Everything about one job: what it asks for, how far it is, its attempts, pods and events."""
    from clusterops.cli import connection
    from clusterops.cli import output as printer

    found = connection.run(
        connection.Target(kubeconfig, context, namespace), lambda session: _collect(session, job)
    )
    if output is Format.JSON:
        printer.write_json(found)
    elif output is Format.YAML:
        printer.write_object(found["job"], "yaml")
    else:
        printer.write("\n".join(page(found)))


async def _collect(session: Any, name: str) -> dict[str, Any]:
    import asyncio

    from clusterops.api.names import EVENTS, LABEL_JOB, PODS, TRAINING_JOBS
    from clusterops.cli import jobs

    job = await jobs.find(session, name)
    space, uid = job["metadata"]["namespace"], job["metadata"]["uid"]
    (pods, _), (events, _) = await asyncio.gather(
        session.client.list(PODS, space, label_selector=f"{LABEL_JOB}={name}"),
        session.client.list(
            EVENTS,
            space,
            field_selector=f"involvedObject.kind={TRAINING_JOBS.kind},involvedObject.uid={uid}",
        ),
    )
    job["metadata"].pop("managedFields", None)
    pods.sort(key=lambda pod: _pod_order(pod["metadata"].get("labels") or {}))
    events.sort(key=_event_time)
    return {"job": job, "pods": pods, "events": events}


def _pod_order(labels: dict[str, str]) -> tuple[int, int]:
    from clusterops.api.names import LABEL_ATTEMPT, LABEL_RANK

    numbers = [labels.get(label, "") for label in (LABEL_ATTEMPT, LABEL_RANK)]
    attempt, rank = (int(text) if text.isdigit() else 0 for text in numbers)
    return attempt, rank


def _event_time(event: dict[str, Any]) -> str:
    return event.get("lastTimestamp") or event.get("eventTime") or ""


def page(found: dict[str, Any]) -> list[str]:
    """The lines of the page, foreign text made harmless."""
    from clusterops.cli.output import safe

    lines = _summary(found["job"])
    lines += _attempts((found["job"].get("status") or {}).get("attempts") or [])
    lines += _conditions((found["job"].get("status") or {}).get("conditions") or [])
    lines += _pods(found["pods"])
    lines += _events(found["events"])
    return [safe(line) for line in lines]


def _summary(job: dict[str, Any]) -> list[str]:
    import shlex

    from clusterops.api.pod_template import gpus
    from clusterops.cli import identity, jobs
    from clusterops.cli.output import age, counted

    metadata, spec, status = job["metadata"], job["spec"], job.get("status") or {}
    each = gpus(spec["template"])
    container = spec["template"]["spec"]["containers"][0]
    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    checkpoint = spec.get("checkpoint") or {}
    facts = {
        "Name": metadata["name"],
        "Namespace": metadata["namespace"],
        "User": identity.submitter(metadata.get("annotations")),
        "Queue": spec["queueName"],
        "Priority": spec.get("priorityClassName") or "<none>",
        "Asks for": f"{spec.get('replicas', 1)} x {counted(each, 'GPU')}",
        "Command": shlex.join(words),
        "Checkpoints": checkpoint.get("directory") or "<none>",
        "Age": age(metadata.get("creationTimestamp")),
        "Phase": str(jobs.phase_of(job)),
        "Reason": jobs.reason_sentence(status),
        "Progress": jobs.progress_words(status),
        "Stop": spec.get("stop") or "",
    }
    counts = status.get("counts") or {}
    if counts:
        facts["So far"] = (
            f"{counted(counts.get('attempts') or 0, 'attempt')}, "
            f"{counted(counts.get('preemptions') or 0, 'preemption')}, "
            f"{counted(counts.get('faults') or 0, 'fault')}, "
            f"{_lost_in_all(counts)}"
        )
    return [f"{name + ':':<13}{value}" for name, value in facts.items() if value != ""]


def _lost_in_all(counts: dict[str, Any]) -> str:
    """The steps lost, as far as anybody knows them."""
    from clusterops.cli.output import counted, number

    if counts.get("lostSteps") is not None or not counts.get("attempts"):
        return f"{counted(counts.get('lostSteps') or 0, 'step')} lost"
    gpu_seconds = counts.get("lostGpuSeconds") or 0
    cost = f" ({number(round(gpu_seconds))} GPU seconds count as lost)" if gpu_seconds else ""
    return f"how many steps are lost is unknown: not all attempts reported theirs{cost}"


def _section(title: str, columns: list[str], rows: list[list[str]]) -> list[str]:
    from clusterops.cli.output import table

    if not rows:
        return []
    return ["", f"{title}:", *(f"  {line}" for line in table(columns, rows).split("\n"))]


def _attempts(attempts: list[dict[str, Any]]) -> list[str]:
    from clusterops.cli.output import clock

    rows = []
    for attempt in attempts:
        numbers = (attempt.get(key) for key in ("firstStep", "lastStep", "durableStep"))
        nodes = dict.fromkeys(attempt.get("nodes") or ())
        rows.append(
            [
                str(attempt["number"]),
                clock(attempt.get("startedAt")),
                clock(attempt.get("endedAt")),
                attempt.get("cause") or "",
                *("" if value is None else str(value) for value in numbers),
                _lost(attempt),
                ", ".join(nodes),
                attempt.get("message") or "",
            ]
        )
    headings = ["NUMBER", "STARTED", "ENDED", "CAUSE", "FIRST", "LAST", "SAVED", "LOST"]
    headings += ["NODES", "MESSAGE"]
    return _section("Attempts", headings, rows)


def _lost(attempt: dict[str, Any]) -> str:
    """The steps an attempt lost; `unknown` once it has ended and had reported none."""
    if attempt.get("lostSteps") is not None:
        return str(attempt["lostSteps"])
    return "unknown" if attempt.get("startedAt") and attempt.get("endedAt") else ""


def _conditions(conditions: list[dict[str, Any]]) -> list[str]:
    rows = [
        [each["type"], each["status"], each.get("reason") or "", each.get("message") or ""]
        for each in conditions
    ]
    return _section("Conditions", ["TYPE", "STATUS", "REASON", "MESSAGE"], rows)


def _pods(pods: list[dict[str, Any]]) -> list[str]:
    rows = []
    for pod in pods:
        status = pod.get("status") or {}
        rows.append(
            [
                pod["metadata"]["name"],
                status.get("phase") or "Pending",
                (pod.get("spec") or {}).get("nodeName") or "<none>",
                status.get("message") or status.get("reason") or "",
            ]
        )
    return _section("Pods", ["NAME", "PHASE", "NODE", "MESSAGE"], rows)


def _events(events: list[dict[str, Any]]) -> list[str]:
    from clusterops.cli.output import age

    rows = [
        [
            age(_event_time(event)),
            event.get("type") or "",
            event.get("reason") or "",
            str(event.get("count") or 1),
            event.get("message") or "",
        ]
        for event in events
    ]
    return _section("Events", ["AGE", "TYPE", "REASON", "COUNT", "MESSAGE"], rows)
