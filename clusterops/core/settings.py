"""The numbers and choices that every decision shares; each with its unit and its reason."""

from typing import Literal

import msgspec


class Settings(msgspec.Struct, frozen=True):
    """How the operator treats all jobs. Durations are seconds."""

    runtime: Literal["containers", "processes"] = "containers"
    """`processes`: all pods share one network and one loopback; ports must differ."""
    agent_url: str = ""
    """Where ranks send heartbeats; empty = jobs are not told, and are ended by signals alone."""
    longest_grace_seconds: float = 600.0
    """Upper bound of every job's own window: someone more urgent is waiting."""
    short_grace_seconds: float = 30.0
    """Between TERM and KILL when nothing can be saved any more (a rank failed, stop: Now)."""
    leave_seconds: float = 5.0
    """After its save is durable a job may leave by itself this long; then TERM."""
    stubborn_seconds: float = 5.0
    """How long after its deadline a pod that was told to end is waited for; then it is deleted.
    Only deletion makes a kubelet shorten the grace that the pod was created with."""
    node_lost_seconds: float = 60.0
    """How long a node may be not Ready, with no heartbeat from it, before its pods are given up."""
    fresh_heartbeat_seconds: float = 30.0
    """A heartbeat younger than this proves that a rank is alive whatever its node's status says."""
    start_failed_seconds: float = 60.0
    """How long a container may fail to be created (image, configuration) before the attempt ends."""
    stuck_seconds: float = 600.0
    """After this long without the expected next step, the reason becomes Stuck."""
    barrier_slack_seconds: float = 15.0
    """How long after a fellow victim's deadline its missing pods are still waited for."""
    progress_seconds: float = 60.0
    """Progress alone is written at most this often, but for an attempt's first step, save and rate."""
    backoff_base_seconds: float = 10.0
    backoff_most_seconds: float = 300.0
    fault_settle_seconds: float = 1.0
    """How long after a rank's end its node's health daemon must have said that all is well, before
    that end is the user's error: a program that loses its GPU fails before the reason is read."""
    fault_word_seconds: float = 20.0
    """How long that word is waited for: the daemon may be dead."""
    start_failures: int = 12
    """A job whose pods could not start so often in a row has failed. With the longest back-off that
    is most of an hour: longer than a registry is away, shorter than a typo should go unseen."""
    taint_seconds: float = 5.0
    """How long after its end a job waits for the taint on the node that is to blame."""
    avoid_node_seconds: float = 600.0
    """A job keeps off a node whose fault ended an attempt of it this long, repaired or not, if there is
    another: others try it first, and who tolerates every taint does not meet the same fault again."""
    kept_attempts: int = 20
    kept_pods_attempts: int = 3
    """Terminal pods of so many attempts stay, for their logs, those that were told to end too."""
