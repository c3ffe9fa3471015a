"""Trains a small character-level transformer on the English text that ships with CPython.

    python -m clusterops.train.examples.char_lm --steps 200 --out DIR          one process
    torchrun --nproc-per-node 2 -m clusterops.train.examples.char_lm --out DIR  several ranks

Deterministic: with the same number of ranks the final weights are the same to the last bit, however
often the job is interrupted on the way. `result.json` in the checkpoint directory holds their hash.
"""

import argparse
import hashlib
import math
import os
import random
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from clusterops import train
from clusterops.train.examples.results import say, write_result


class Text:
    """The documentation of Python's topics, as one row of character numbers."""

    def __init__(self) -> None:
        from pydoc_data.topics import topics

        text = "\n".join(topics[name] for name in sorted(topics))
        # Rare characters share one number: fewer rows to learn.
        counts = {letter: text.count(letter) for letter in sorted(set(text))}
        letters = [letter for letter, count in counts.items() if count >= 20]
        numbers = {letter: number + 1 for number, letter in enumerate(letters)}
        self.vocabulary = len(letters) + 1
        self.characters = torch.tensor([numbers.get(letter, 0) for letter in text])

    def windows(self, starts: tuple[int, ...], length: int) -> torch.Tensor:
        """[len(starts), length + 1] characters: each row is an input and, shifted, its target."""
        return torch.stack([self.characters[start : start + length + 1] for start in starts])


class Block(nn.Module):
    """One transformer layer: attention to what came before, then a small network."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.attention_norm = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.network_norm = nn.LayerNorm(width)
        self.network = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(dropout)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, time, width] to the same."""
        batch, time, width = x.shape
        mixed = self.query_key_value(self.attention_norm(x))
        query, key, value = (
            part.view(batch, time, self.heads, width // self.heads).transpose(1, 2)
            for part in mixed.split(width, dim=2)
        )
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.projection(attended.transpose(1, 2).reshape(batch, time, width))
        refined: torch.Tensor = x + self.network(self.network_norm(x))
        return refined


class CharacterModel(nn.Module):
    """Predicts the next character. The output layer shares its weights with the embedding."""

    def __init__(
        self, vocabulary: int, context: int, width: int, layers: int, dropout: float
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.position = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, 4, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.output = nn.Linear(width, vocabulary, bias=False)
        for table in (self.embedding, self.position):
            nn.init.normal_(table.weight, std=0.02)
        self.output.weight = self.embedding.weight

    def forward(self, characters: torch.Tensor) -> torch.Tensor:
        """[batch, time] character numbers to [batch, time, vocabulary] logits."""
        places = torch.arange(characters.shape[1], device=characters.device)
        x = self.embedding(characters) + self.position(places)
        for block in self.blocks:
            x = block(x)
        logits: torch.Tensor = self.output(self.norm(x))
        return logits


def make_deterministic(seed: int) -> None:
    """The same numbers in every run: one thread a rank, no kernels that depend on timing."""
    random.seed(seed)
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)


def weights_sha256(model: nn.Module) -> str:
    """The hash of all parameters, by name."""
    chain = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        chain.update(name.encode())
        chain.update(tensor.cpu().contiguous().numpy().tobytes())
    return chain.hexdigest()


def warm_up_then_decay(step: int, steps: int) -> float:
    """The learning rate's factor: rises over 20 steps, then follows a cosine to a tenth."""
    if step < 20:
        return (step + 1) / 20
    return 0.1 + 0.45 * (1 + math.cos(math.pi * min(1.0, step / max(1, steps))))


def main(arguments: list[str] | None = None) -> None:
    """The job."""
    options = _options(arguments)
    distributed = int(os.environ.get("WORLD_SIZE", "1")) > 1
    # Dropout differs by rank, initial weights must not: the seed is set again below.
    make_deterministic(options.seed)
    if distributed:
        train.init_process_group("gloo")
    try:
        _train(options, distributed)
    finally:
        if distributed:
            torch.distributed.destroy_process_group()


def _train(options: argparse.Namespace, distributed: bool) -> None:
    text = Text()
    model = CharacterModel(
        text.vocabulary, options.context, options.width, options.layers, options.dropout
    )
    trained: nn.Module = nn.parallel.DistributedDataParallel(model) if distributed else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: warm_up_then_decay(step, options.steps)
    )
    starts = len(text.characters) - options.context - 1
    cursor = train.DataCursor(starts, batch_size=options.batch, seed=options.seed)
    with train.session(
        total_steps=options.steps,
        checkpoint_dir=options.out,
        save_every_steps=options.save_every,
    ) as run:
        torch.manual_seed(options.seed * 1000 + run.rank)
        resumed = run.resume(model=model, optimizer=optimizer, schedule=schedule, cursor=cursor)
        if run.rank == 0:
            ranks = f"{run.world_size} rank{'s' if run.world_size > 1 else ''}"
            say(f"start at step {resumed.step}/{options.steps} with {ranks}")
        loss = math.nan
        for step in run.steps():
            batch = cursor.issue()
            windows = text.windows(batch.for_rank(run.rank, run.world_size), options.context)
            loss = _step(trained, optimizer, schedule, windows)
            cursor.consume(batch)
            run.report(loss=loss)
            if run.rank == 0 and (step + 1) % options.log_every == 0:
                say(f"step {step + 1}/{options.steps} loss {loss:.4f}")
        if run.rank == 0 and run.directory is not None:
            write_result(run.directory, _result(run, model, cursor))


def _step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    schedule: Any,
    windows: torch.Tensor,
) -> float:
    logits = model(windows[:, :-1])
    loss = functional.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    schedule.step()
    return loss.item()


def _result(run: train.Session, model: nn.Module, cursor: train.DataCursor) -> dict[str, Any]:
    return {
        "job": "char_lm",
        "steps": run.step,
        "worldSize": run.world_size,
        "finalLoss": run.metrics.get("loss"),
        "weightsSha256": weights_sha256(model),
        "orderDigest": cursor.order_digest,
    }


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="char_lm", description="Trains a small character-level transformer."
    )
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch", type=int, default=16, help="windows a step, over all ranks")
    parser.add_argument("--context", type=int, default=32, help="characters a window")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--save-every", type=int, help="steps between checkpoints; default: by time"
    )
    parser.add_argument("--log-every", type=int, default=10)
    parser.add_argument("--out", type=Path, help="checkpoint directory when run by hand")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
