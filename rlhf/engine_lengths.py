"""How long the answer to a prompt will be: as long as its answers were before.

The longest responses decide when a batch of rollouts is done, so they should start first. A prompt
comes again every epoch, and the mean of its earlier answers is nearly as good as knowing.
"""

from collections import OrderedDict


class LengthHistory:
    """The mean length of a prompt's answers, the newest ones counting more; `most` prompts."""

    def __init__(self, most: int = 100_000, newest: float = 0.3) -> None:
        self._most = most
        self._newest = newest
        self._means: OrderedDict[str, float] = OrderedDict()

    def predicted(self, prompt_id: str, unknown: int) -> int:
        """Expected tokens; `unknown` for a prompt that was never answered."""
        mean = self._means.get(prompt_id)
        return unknown if mean is None else round(mean)

    def observe(self, prompt_id: str, length: int) -> None:
        """An answer is done."""
        known = self._means.pop(prompt_id, None)
        mean = float(length) if known is None else known + self._newest * (length - known)
        self._means[prompt_id] = mean
        if len(self._means) > self._most:
            self._means.popitem(last=False)
