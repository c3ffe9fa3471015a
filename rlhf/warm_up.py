"""Imitation before reinforcement: a policy that cannot do the task at all gets no reward to learn from.

Its progress is part of the checkpoint, so a job that is told to leave in the middle goes on there. What
is imitated at a step is a function of the seed and the step.
"""

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn import functional

from rlhf.config.sections import RunConfig
from rlhf.model.language import LanguageModel
from rlhf.tasks.task import Demonstration, Task

_IGNORED = -100


class WarmUp:
    """Cross-entropy on the responses of demonstrations, under a learning rate that falls to nothing."""

    def __init__(self, model: LanguageModel, task: Task, config: RunConfig) -> None:
        self._model = model
        self._task = task
        self._settings = config.warm_up
        self._seed = config.seed
        self._optimizer: torch.optim.AdamW | None = None
        self.steps = config.warm_up.steps if self._demonstrates() else 0
        self.done = 0

    @property
    def finished(self) -> bool:
        """Whether nothing is left of it."""
        return self.done >= self.steps

    def run(self, between: Callable[[], None] = lambda: None) -> float:
        """Does what is left, and calls `between` between two steps, never after the last: whoever saves
        there sees a warm-up that has still to be finished. The last loss; 0 when nothing was left.
        """
        loss = 0.0
        while not self.finished:
            loss = self._step(self.done)
            self.done += 1
            if not self.finished:
                between()
        self._optimizer = None
        return loss

    def state_dict(self) -> dict[str, Any]:
        """How far it is."""
        optimizer = self._optimizer
        return {
            "done": self.done,
            "optimizer": None if optimizer is None else optimizer.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where it was."""
        self.done = state["done"]
        if state["optimizer"] is not None:
            self._made_optimizer().load_state_dict(state["optimizer"])

    def _demonstrates(self) -> bool:
        return next(self._task.demonstrations(0), None) is not None

    def _made_optimizer(self) -> torch.optim.AdamW:
        if self._optimizer is None:
            self._optimizer = torch.optim.AdamW(
                self._model.parameters(), lr=self._settings.lr, weight_decay=0.0
            )
        return self._optimizer

    def _step(self, number: int) -> float:
        settings, optimizer = self._settings, self._made_optimizer()
        stream = self._task.demonstrations(self._seed * 1_000_003 + number)
        batch = list(itertools.islice(stream, settings.batch))
        tokens, targets = _laid_out(batch, self._model.context, self._model.device)
        for group in optimizer.param_groups:
            group["lr"] = settings.lr * min(1.0, (number + 1) / 20) * (1 - number / self.steps)
        logits = self._model(tokens).logits
        loss = functional.cross_entropy(
            logits.flatten(0, 1).float(), targets.flatten(), ignore_index=_IGNORED
        )
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._model.parameters(), 1.0)
        optimizer.step()
        return float(loss.detach())


def _laid_out(
    batch: list[Demonstration], context: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """[rows, tokens] inputs, and targets that count on the response's tokens alone."""
    rows = [[*one.prompt, *one.response][:context] for one in batch]
    longest = max(len(row) for row in rows)
    tokens = [row[:-1] + [0] * (longest - len(row)) for row in rows]
    targets = [
        [_IGNORED] * (len(one.prompt) - 1)
        + row[len(one.prompt) :]
        + [_IGNORED] * (longest - len(row))
        for one, row in zip(batch, rows, strict=True)
    ]
    return torch.tensor(tokens, device=device), torch.tensor(targets, device=device)
