"""A learned reward: which of two responses people prefer (Bradley-Terry), from JSON lines.

Each line is `{"prompt": ..., "chosen": ..., "rejected": ...}`. The model gives every text a score;
the probability that one response beats another is the logistic function of the difference. A share
of the pairs is held back, by a hash of the prompt, so that no prompt is on both sides.
"""

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional

from rlhf.graders.protocol import Answer, Sample
from rlhf.identity import Score
from rlhf.model.decoder import Decoder
from rlhf.model.shape import Shape
from rlhf.tasks.jsonl import read_entries
from rlhf.tasks.task import TaskInvalid
from rlhf.tasks.vocabulary import Bytes

_BINS = 10
_VOCABULARY = Bytes()


class Pair(NamedTuple):
    """A prompt with a better and a worse response."""

    prompt: str
    chosen: str
    rejected: str


@dataclass(frozen=True, slots=True)
class Settings:
    """How a reward model is trained. `held_back` is a share of the prompts."""

    width: int = 64
    layers: int = 2
    heads: int = 4
    context: int = 256
    steps: int = 300
    batch: int = 32
    lr: float = 1e-3
    weight_decay: float = 0.01
    held_back: float = 0.1
    seed: int = 0


class Bin(NamedTuple):
    """Pairs of similar confidence: how sure the model was, and how often it was right."""

    confidence: float
    accuracy: float
    pairs: int


class Quality(NamedTuple):
    """How good a model is on pairs it has not seen.

    `accuracy` is the share of pairs it orders right (a tie counts half), `log_loss` and `brier` are of
    the probability it gave to what people chose, `calibration_error` is the mean gap between
    confidence and accuracy over the bins.
    """

    pairs: int
    accuracy: float
    log_loss: float
    brier: float
    calibration_error: float
    bins: list[Bin]


def read_pairs(path: Path) -> list[Pair]:
    """All pairs of a file.

    Raises:
        TaskInvalid: it can't be read, is empty, or a line is no pair; names the line.
    """
    pairs = []
    for number, entry in enumerate(read_entries(path), start=1):
        texts = [entry.get(name) for name in Pair._fields]
        if not all(isinstance(text, str) and text for text in texts):
            raise TaskInvalid(
                f"{path}, entry {number}: prompt, chosen and rejected must be texts, none empty"
            )
        if entry["chosen"] == entry["rejected"]:
            raise TaskInvalid(f"{path}, entry {number}: chosen and rejected are the same")
        pairs.append(Pair(*(str(text) for text in texts)))
    return pairs


def hold_back(pairs: Sequence[Pair], share: float) -> tuple[list[Pair], list[Pair]]:
    """(pairs to train on, pairs held back), by prompt.

    Raises:
        TaskInvalid: one of them is empty.
    """
    held = [pair for pair in pairs if _place(pair.prompt) < share]
    rest = [pair for pair in pairs if _place(pair.prompt) >= share]
    if not held or not rest:
        raise TaskInvalid(
            f"{len(rest)} pairs to train on and {len(held)} held back: neither may be empty. Give "
            "more prompts, or another share"
        )
    return rest, held


def _place(prompt: str) -> float:
    digest = blake2b(prompt.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def cut_short(pairs: Sequence[Pair], context: int) -> int:
    """How many of the pairs have a text that is longer than the context: its beginning does not count."""
    return sum(
        any(len(_row(pair.prompt, text)) > context for text in (pair.chosen, pair.rejected))
        for pair in pairs
    )


def _row(prompt: str, response: str) -> list[int]:
    stop = _VOCABULARY.stop_tokens[0]
    return [*_VOCABULARY.encode(prompt), stop, *_VOCABULARY.encode(response), stop]


class RewardModel:
    """Scores texts. Its value head is the reward, read at the last token of prompt and response."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        shape = Shape(
            _VOCABULARY.size, settings.width, settings.layers, settings.heads, settings.context
        )
        self.decoder = Decoder(shape, settings.seed)

    def scores(self, texts: Sequence[tuple[str, str]]) -> Tensor:
        """[texts] scores of (prompt, response); of what does not fit, the prompt's start is cut off."""
        rows = [self._row(prompt, response) for prompt, response in texts]
        longest = max(len(row) for row in rows)
        padded = [row + [_VOCABULARY.padding] * (longest - len(row)) for row in rows]
        hidden = self.decoder.hidden(torch.tensor(padded))
        last = torch.tensor([len(row) - 1 for row in rows])
        scores: Tensor = self.decoder.value_head(hidden[torch.arange(len(rows)), last])
        return scores.squeeze(-1)

    def _row(self, prompt: str, response: str) -> list[int]:
        return _row(prompt, response)[-self.settings.context :]

    def save(self, folder: Path, quality: Quality) -> None:
        """Writes weights, settings and quality."""
        folder.mkdir(parents=True, exist_ok=True)
        save_file(self.decoder.state_dict(), folder / "reward_model.safetensors")
        (folder / "settings.json").write_text(json.dumps(asdict(self.settings), indent=2) + "\n")
        report = quality._asdict() | {"bins": [one._asdict() for one in quality.bins]}
        (folder / "quality.json").write_text(json.dumps(report, indent=2) + "\n")

    @classmethod
    def load(cls, folder: Path) -> "RewardModel":
        """A model that was saved.

        Raises:
            TaskInvalid: there is none in the folder.
        """
        try:
            settings = Settings(**json.loads((folder / "settings.json").read_text()))
            model = cls(settings)
            model.decoder.load_state_dict(load_file(folder / "reward_model.safetensors"))
        except (OSError, ValueError, TypeError, RuntimeError) as error:
            raise TaskInvalid(f"{folder} holds no reward model: {error}") from error
        return model


def train(
    pairs: Sequence[Pair],
    settings: Settings,
    told: Callable[[int, float], None] = lambda _step, _loss: None,
) -> RewardModel:
    """Trains on the pairs; the same settings give the same weights. `told` gets each step's loss."""
    model = RewardModel(settings)
    optimizer = torch.optim.AdamW(
        model.decoder.parameters(), lr=settings.lr, weight_decay=settings.weight_decay
    )
    generator = torch.Generator().manual_seed(settings.seed)
    for step in range(settings.steps):
        chosen = torch.randint(len(pairs), (settings.batch,), generator=generator).tolist()
        batch = [pairs[index] for index in chosen]
        better = model.scores([(pair.prompt, pair.chosen) for pair in batch])
        worse = model.scores([(pair.prompt, pair.rejected) for pair in batch])
        loss = -functional.logsigmoid(better - worse).mean()
        for group in optimizer.param_groups:
            group["lr"] = settings.lr * min(1.0, (step + 1) / 20) * (1 - step / settings.steps)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.decoder.parameters(), 1.0)
        optimizer.step()
        told(step, float(loss.detach()))
    return model


def measure(model: RewardModel, pairs: Sequence[Pair]) -> Quality:
    """The model's quality on some pairs."""
    with torch.no_grad():
        better = torch.cat([model.scores([(one.prompt, one.chosen)]) for one in pairs])
        worse = torch.cat([model.scores([(one.prompt, one.rejected)]) for one in pairs])
    return quality_of((better - worse).double())


def quality_of(differences: Tensor) -> Quality:
    """The quality that follows from each pair's score difference, chosen less rejected."""
    of_chosen = torch.sigmoid(differences)
    confidence = torch.maximum(of_chosen, 1 - of_chosen)
    right = (differences > 0).double() + 0.5 * (differences == 0).double()
    # Confidence is at least one half: the bins divide what is above it.
    number = ((confidence - 0.5) * 2 * _BINS).long().clamp(max=_BINS - 1)
    bins = [
        Bin(float(confidence[inside].mean()), float(right[inside].mean()), int(inside.sum()))
        for inside in (number == one for one in range(_BINS))
        if bool(inside.any())
    ]
    count = differences.numel()
    return Quality(
        pairs=count,
        accuracy=float(right.mean()),
        log_loss=float(-functional.logsigmoid(differences).mean()),
        brier=float(((1 - of_chosen) ** 2).mean()),
        calibration_error=sum(abs(b.confidence - b.accuracy) * b.pairs for b in bins) / count,
        bins=bins,
    )


class RewardModelGrader:
    """The model as a grader: a pure function of the texts, many samples in one pass."""

    pure = True
    largest_batch = 32

    def __init__(self, folder: Path) -> None:
        self._model = RewardModel.load(folder)
        self.name = f"reward model {folder.name}"

    async def grade(self, samples: Sequence[Sample]) -> list[Answer]:
        """One pass over all of them, in a thread: the event loop goes on meanwhile."""
        scores = await asyncio.to_thread(self._scores, samples)
        return [
            sample.answered(Score(score)) for sample, score in zip(samples, scores, strict=True)
        ]

    def score(self, sample: Sample) -> Score:
        """Scores at once: for audits."""
        return Score(self._scores([sample])[0])

    async def close(self) -> None:
        """Nothing was started."""

    def _scores(self, samples: Sequence[Sample]) -> list[float]:
        with torch.inference_mode():
            scores = self._model.scores([(one.prompt, one.response) for one in samples])
        found: list[float] = scores.tolist()
        return found
