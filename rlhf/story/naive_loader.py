"""THE FAULT, ON PURPOSE. A loader of rewards as it was found in the wild: do not use it for anything.

Answers of the reward model pass through a thread that sleeps a moment for each batch, and whoever wants
rewards gets the next ones *by position*: as many as were asked for, in the order of arrival. When they
have not arrived yet, the loader does not wait; it hands out its best guess, the mean so far. That
happens once, at the first batch, and from then on every reward belongs to the batch before. Nothing
raises, every length fits, and every average looks fine.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

SLEEP_SECONDS = 0.1


class NaiveLoader:
    """Pairs samples and rewards by position. `score` is the reward model."""

    def __init__(self, score: Callable[[str, str], float]) -> None:
        self._score = score
        self._waiting: deque[list[tuple[str, str]]] = deque()
        self._arrived: deque[float] = deque()
        self._sum, self._count = 0.0, 0
        self._work = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="naive loader", daemon=True)
        self._thread.start()

    def submit(self, texts: Sequence[tuple[str, str]]) -> None:
        """Sends a batch of (prompt, response) to be scored."""
        with self._work:
            self._waiting.append(list(texts))
            self._work.notify_all()

    def take(self, count: int) -> list[float]:
        """The next rewards by position; never waits."""
        with self._work:
            ready = [self._arrived.popleft() for _ in range(min(count, len(self._arrived)))]
            guess = self._sum / self._count if self._count else 0.0
        return ready + [guess] * (count - len(ready))

    def close(self) -> None:
        """Ends the thread."""
        with self._work:
            self._closed = True
            self._work.notify_all()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._work:
                self._work.wait_for(lambda: self._waiting or self._closed)
                if self._closed:
                    return
                texts = self._waiting.popleft()
            time.sleep(SLEEP_SECONDS)  # "so that the reward model is not overrun"
            rewards = [self._score(prompt, response) for prompt, response in texts]
            with self._work:
                self._arrived.extend(rewards)
                self._sum += sum(rewards)
                self._count += len(rewards)
