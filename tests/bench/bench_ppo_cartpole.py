"""CartPole with the PPO core of RLHF: at least 475 of 500 within 500,000 steps.

    python tests/bench/bench_ppo_cartpole.py [--steps N] [--seed N]

The same `update`, losses and advantages that train language models; only rows are pieces of episodes and
inputs are states of a cart. Prints the mean return of the last 100 episodes, that of a random policy in
the same world, their ratio, and steps a second.
"""

import argparse
import sys
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from rlhf.config.algorithm import Kl, Ppo
from rlhf.ppo.advantages import gae
from rlhf.ppo.layout import Masks, response_mask
from rlhf.ppo.statistics import whiten
from rlhf.ppo.update import Evaluation, Rows, update

WANTED, MOST_STEPS = 475.0, 500
ENVIRONMENTS, HORIZON = 8, 128
SETTINGS = Ppo(
    gamma=0.99,
    lam=0.95,
    epochs=4,
    minibatches=4,
    clip_low=0.2,
    clip_high=0.2,
    value_clip=None,
    value_coefficient=0.5,
    entropy_coefficient=0.01,
    max_grad_norm=0.5,
)


class CartPoles:
    """A pole on a cart, many times at once: the classic equations, Euler steps of 20 ms."""

    def __init__(self, count: int, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self.states = self._fresh(count)
        self.ages = np.zeros(count, dtype=np.int64)

    def _fresh(self, count: int) -> np.ndarray:
        return self._random.uniform(-0.05, 0.05, (count, 4))

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(fallen, out of time) after pushing left (0) or right (1); the reward is always 1."""
        _, speed, angle, spin = self.states.T
        force = np.where(actions == 1, 10.0, -10.0)
        cosine, sine = np.cos(angle), np.sin(angle)
        push = (force + 0.05 * spin**2 * sine) / 1.1
        turning = (9.8 * sine - cosine * push) / (0.5 * (4.0 / 3.0 - 0.1 * cosine**2 / 1.1))
        moving = push - 0.05 * turning * cosine / 1.1
        change = np.stack((speed, moving, spin, turning), axis=1)
        self.states = self.states + 0.02 * change
        self.ages += 1
        fallen = (np.abs(self.states[:, 0]) > 2.4) | (np.abs(self.states[:, 2]) > np.radians(12))
        return fallen, ~fallen & (self.ages >= MOST_STEPS)

    def restart(self, which: np.ndarray) -> None:
        """New episodes in these places."""
        self.states[which] = self._fresh(int(which.sum()))
        self.ages[which] = 0


class ActorCritic(nn.Module):
    """Two networks of 64 x 64."""

    def __init__(self) -> None:
        super().__init__()
        self.actor, self.critic = _network(2, 0.01), _network(1, 1.0)

    def evaluate(self, inputs: tuple[Tensor, Tensor]) -> Evaluation:
        """[rows, width] log-probability, entropy and value of given actions."""
        states, actions = inputs
        logprobs = torch.log_softmax(self.actor(states), dim=-1)
        entropy = -(logprobs.exp() * logprobs).sum(dim=-1)
        chosen = logprobs.gather(-1, actions[..., None]).squeeze(-1)
        return Evaluation(chosen, entropy, self.critic(states).squeeze(-1))


def _network(outputs: int, gain: float) -> nn.Sequential:
    layers = nn.Sequential(
        nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs)
    )
    for layer, scale in ((layers[0], 2**0.5), (layers[2], 2**0.5), (layers[4], gain)):
        nn.init.orthogonal_(layer.weight, scale)
        nn.init.zeros_(layer.bias)
    return layers


@dataclass
class Pieces:
    """Pieces of episodes as rows, padded on the right."""

    states: Tensor
    actions: Tensor
    masks: Masks
    proximal: Tensor
    advantages: Tensor
    old_values: Tensor
    returns: Tensor

    @property
    def size(self) -> int:
        return self.states.shape[0]

    def counts(self, rows: Tensor) -> tuple[int, int]:
        count = int(self.masks.policy[rows].sum())
        return count, count

    def take(self, rows: Tensor) -> Rows:
        mask = self.masks.policy[rows]
        return Rows(
            inputs=(self.states[rows], self.actions[rows]),
            masks=Masks(mask, mask),
            proximal=self.proximal[rows],
            advantages=self.advantages[rows],
            weights=torch.ones_like(self.proximal[rows]),
            old_values=self.old_values[rows],
            returns=self.returns[rows],
        )


def pieces_of(
    model: ActorCritic, parts: list[tuple[np.ndarray, np.ndarray, np.ndarray | None]]
) -> Pieces:
    """Rows from (states, actions, the state after the end unless the pole fell)."""
    width = max(len(actions) for _, actions, _ in parts)
    states = torch.zeros(len(parts), width, 4)
    actions = torch.zeros(len(parts), width, dtype=torch.int64)
    after = torch.zeros(len(parts), 4)
    going = torch.zeros(len(parts))
    for row, (seen, done, last) in enumerate(parts):
        states[row, : len(done)] = torch.from_numpy(seen).float()
        actions[row, : len(done)] = torch.from_numpy(done)
        if last is not None:
            after[row], going[row] = torch.from_numpy(last).float(), 1.0
    mask = response_mask(torch.tensor([len(done) for _, done, _ in parts]), width)
    with torch.no_grad():
        now = model.evaluate((states, actions))
        bootstrap = model.critic(after).squeeze(-1) * going
    assert now.values is not None
    rewards = mask.float()
    advantages, returns = gae(rewards, now.values, mask, SETTINGS.gamma, SETTINGS.lam, bootstrap)
    return Pieces(
        states,
        actions,
        Masks(mask, mask),
        now.logprobs,
        whiten(advantages, mask),
        now.values,
        returns,
    )


def collect(
    model: ActorCritic | None, world: CartPoles, random: np.random.Generator, returns: list[int]
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray | None]]:
    """HORIZON steps in every place, cut into pieces of episodes; finished episodes are noted."""
    begun: list[list[tuple[np.ndarray, int]]] = [[] for _ in range(ENVIRONMENTS)]
    parts = []

    def cut(place: int, after: np.ndarray | None) -> None:
        if begun[place]:
            states, actions = zip(*begun[place], strict=True)
            parts.append((np.array(states), np.array(actions), after))
        begun[place] = []

    for _ in range(HORIZON):
        chance = _right(model, world.states)
        actions = (random.random(ENVIRONMENTS) < chance).astype(np.int64)
        for place in range(ENVIRONMENTS):
            begun[place].append((world.states[place].copy(), int(actions[place])))
        fallen, out_of_time = world.step(actions)
        for place in np.flatnonzero(fallen | out_of_time):
            returns.append(int(world.ages[place]))
            cut(place, None if fallen[place] else world.states[place].copy())
        world.restart(fallen | out_of_time)
    for place in range(ENVIRONMENTS):
        cut(place, world.states[place].copy())
    return parts


def _right(model: ActorCritic | None, states: np.ndarray) -> np.ndarray:
    if model is None:
        return np.full(len(states), 0.5)
    with torch.inference_mode():
        logits = model.actor(torch.from_numpy(states).float())
        return torch.softmax(logits, dim=-1)[:, 1].numpy()


def main() -> int:
    """Trains, prints, exits 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)
    random = np.random.default_rng(options.seed)
    baseline: list[int] = []
    idle = CartPoles(ENVIRONMENTS, options.seed)
    for _ in range(20):
        collect(None, idle, random, baseline)
    model, world = ActorCritic(), CartPoles(ENVIRONMENTS, options.seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=2.5e-4 * 4, eps=1e-5)
    returns: list[int] = []
    updates = options.steps // (ENVIRONMENTS * HORIZON)
    began = time.monotonic()
    for number in range(updates):
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * (1 - number / updates)
        experience = pieces_of(model, collect(model, world, random, returns))
        update(experience, model.evaluate, optimizer, SETTINGS, Kl(), 0.0, options.seed + number)
        if number % 50 == 49:
            recent = returns[-100:]
            print(
                f"  {(number + 1) * ENVIRONMENTS * HORIZON} steps: {np.mean(recent):.1f}",
                flush=True,
            )
    seconds = time.monotonic() - began
    reached, chance = float(np.mean(returns[-100:])), float(np.mean(baseline))
    print(f"mean return of the last 100 episodes: {reached:.1f} (wanted: {WANTED:g})")
    print(f"random policy: {chance:.1f}, ratio {reached / chance:.1f}")
    print(f"{updates * ENVIRONMENTS * HORIZON / seconds:.0f} steps a second")
    print("reached" if reached >= WANTED else "NOT reached")
    return 0


if __name__ == "__main__":
    sys.exit(main())
