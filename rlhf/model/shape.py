"""The size of our decoder."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shape:
    """The size of a decoder. `context` is the most tokens of a row, prompt and response."""

    vocabulary: int
    width: int = 64
    layers: int = 2
    heads: int = 4
    context: int = 128
    hidden: int | None = None
    rope_base: float = 10_000.0

    def __post_init__(self) -> None:
        if self.width % self.heads or (self.width // self.heads) % 2:
            raise ValueError(
                f"width {self.width} must be a multiple of 2 x {self.heads} heads: "
                "rotary positions turn pairs of numbers within a head"
            )

    @property
    def inner(self) -> int:
        """Width of the gated network: with its third matrix as large as a plain one four times as wide."""
        return self.hidden or max(8, round(self.width / 3) * 8)
