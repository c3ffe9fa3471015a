"""A callback that lets Hugging Face's Trainer save and leave when the cluster asks it to.

    with train.session(total_steps=arguments.max_steps) as run:
        trainer = Trainer(..., callbacks=[transformers_callback.callback(run)])
        trainer.train(resume_from_checkpoint=transformers_callback.newest(arguments.output_dir))

The Trainer keeps writing its own checkpoints, where and as it always does; the session only says when.
`transformers` is imported at the first call, and is no dependency of this library.
"""

import re
from pathlib import Path
from typing import Any

from clusterops.train.sessions import Session

_CHECKPOINT_NAME = re.compile(r"checkpoint-(\d+)")
# The Trainer writes this file of a checkpoint after model and optimizer.
_LAST_FILE = "trainer_state.json"


def callback(run: Session) -> Any:
    """A `transformers.TrainerCallback` for this session."""
    from transformers import TrainerCallback

    class SessionCallback(TrainerCallback):
        """Asks the session after each step, and tells it of each checkpoint."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            """Where the Trainer resumes, the session goes on."""
            del args, control
            run.resumed_elsewhere(state.global_step)

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
            """Called after each optimizer step, before the Trainer decides whether to save."""
            del args, state
            if run.should_save():
                control.should_save = True
            return control

        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
            """The checkpoint is written; when the job has to leave, training stops here."""
            folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            run.saved(state.global_step, folder)
            if run.leaving:
                control.should_training_stop = True
            return control

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            """The Trainer's figures become the session's."""
            del args, state, control
            run.metrics.update(logs or {})

    return SessionCallback()


def newest(output_dir: str | Path) -> str | None:
    """The newest complete checkpoint of a Trainer, for `resume_from_checkpoint`; None to start afresh.

    The Trainer itself takes the highest number, complete or not.
    """
    found = [
        (int(match.group(1)), entry)
        for entry in (Path(output_dir).iterdir() if Path(output_dir).is_dir() else ())
        if (match := _CHECKPOINT_NAME.fullmatch(entry.name)) and _is_complete(entry)
    ]
    return str(max(found)[1]) if found else None


def _is_complete(folder: Path) -> bool:
    last = folder / _LAST_FILE
    return folder.is_dir() and last.is_file() and last.stat().st_size > 0
