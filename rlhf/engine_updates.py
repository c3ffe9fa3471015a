"""New weights: checked before anything changes, applied between steps, in their order.

Three ways, for what runs when they arrive:

- finish: it goes on with the weights it began with; newer requests wait for the new ones. The only
  way in which a response is of one policy, so the one for runs that must be repeatable.
- recompute: it goes on with the new weights, which read everything again first.
- carry: it goes on with the new weights over the old keys and values. Cheapest, and the tokens say so.
"""

from collections import deque
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import NamedTuple

from torch import Tensor, nn

State = Mapping[str, Tensor]
Weights = State | Callable[[], None]


class OnUpdate(StrEnum):
    """What becomes of a rollout that runs when new weights arrive."""

    FINISH = "finish"
    RECOMPUTE = "recompute"
    CARRY = "carry"


class WeightsMismatch(ValueError):
    """Weights for another model: names or shapes differ. The old ones are still in place."""


class Update(NamedTuple):
    """Weights that wait for those before them, and the policy version they are."""

    epoch: int
    version: int
    weights: Weights


class Updates:
    """The order of weights. An epoch counts updates; a policy version may come back, an epoch not."""

    def __init__(self, model: nn.Module, version: int) -> None:
        self._model = model
        self.policies = {0: version}
        """Policy version by epoch."""
        self.applied = 0
        self._pending: deque[Update] = deque()

    @property
    def announced(self) -> int:
        """The newest epoch, applied or not."""
        return self._pending[-1].epoch if self._pending else self.applied

    def announce(self, version: int, weights: Weights, *, at_once: bool) -> None:
        """New weights. Those that must wait are copied: the caller goes on training on them.

        Raises:
            WeightsMismatch: they are another model's.
        """
        if not callable(weights):
            check(self._model, weights)
            if not at_once:
                weights = {name: tensor.detach().clone() for name, tensor in weights.items()}
        epoch = self.announced + 1
        self.policies[epoch] = version
        self._pending.append(Update(epoch, version, weights))

    def next_due(self, busy: bool) -> Update | None:
        """The next weights, when nobody is `busy` with the present ones."""
        return self._pending[0] if self._pending and not busy else None

    def apply(self) -> None:
        """Puts the next weights in place."""
        update = self._pending.popleft()
        if callable(update.weights):
            update.weights()
        else:
            self._model.load_state_dict(dict(update.weights))
        self.applied = update.epoch


def check(model: nn.Module, state: State) -> None:
    """Compares names and shapes.

    Raises:
        WeightsMismatch: names the first difference and counts the others.
    """
    own = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    given = {name: tuple(tensor.shape) for name, tensor in state.items()}
    wrong = [f"{name} is missing" for name in own if name not in given]
    wrong += [f"{name} is not the model's" for name in given if name not in own]
    wrong += [
        f"{name} is {list(given[name])}, the model's is {list(own[name])}"
        for name in own
        if name in given and given[name] != own[name]
    ]
    if wrong:
        more = f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise WeightsMismatch(f"weights of another model: {wrong[0]}{more}")
