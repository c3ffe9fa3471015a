"""Chapter "rlhf": reinforcement learning from rewards on the same cluster, preempted like any other job.

1. A PPO run samples, has its samples graded, and trains, all at once.
2. An urgent job needs every GPU. The run saves, its rollout and graders end with it.
3. It comes back: finished samples are used, unanswered ones asked again, trained ones never repeated.
4. It ends with exactly the weights of the same run undisturbed, and the doctor proves the order.
"""

import asyncio
import subprocess
import sys

from clusterops.local.demo import preemption
from clusterops.local.demo.report import DemoReport
from clusterops.local.demo.stage import DemoFailed, Stage

STEPS_BEFORE_THE_URGENT_JOB = 30
DOCTOR_SECONDS = 60.0
_RUN = "rlhf.yaml"


async def play(stage: Stage) -> DemoReport:
    """Plays the chapter and measures it.

    Raises:
        DemoFailed: something that had to happen did not.
    """
    report = await preemption.contest(stage, _RUN, "train-all.yaml", STEPS_BEFORE_THE_URGENT_JOB)
    job = preemption.load(stage.manifests / "examples" / _RUN)
    stage.say("", "$ clusterops rlhf doctor on what the run has written")
    stage.say(job["metadata"]["name"], await _verdict(str(preemption.checkpoints(stage, job))))
    return report


async def _verdict(run_folder: str) -> str:
    """The doctor's verdict on a run."""
    doctor = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "clusterops.cli", "rlhf", "doctor", run_folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(DOCTOR_SECONDS):
            output, _ = await doctor.communicate()
    except TimeoutError:
        doctor.kill()
        raise DemoFailed(f"the doctor said nothing within {DOCTOR_SECONDS:.0f} s") from None
    lines = output.decode(errors="replace").splitlines()
    if doctor.returncode:
        raise DemoFailed("the doctor finds the run unwell: " + "; ".join(lines[:3]))
    return lines[0]
