"""Which requests are tried again, after which failures, and when.

| request | 429 | 5xx | no answer |
|---|---|---|---|
| get, list | yes | yes | yes |
| replace, delete, apply, merge patch | yes | yes | yes |
| create, subresource POST, JSON patch | yes | only 503 with Retry-After | no |

The second row states what shall be, so doing it twice is doing it once; a replace whose first try
was stored after all answers 409 the second time, and its caller reads anew. The third row may
have been done although the answer was lost; 429, and 503 with Retry-After, mean it was not begun.
"""

import random
from typing import NamedTuple

from clusterops.kube.errors import Retryable, ServerBusy


class RetryPolicy(NamedTuple):
    """How patiently a request is repeated.

    `attempts` counts all tries; those that got no answer at all end after `unreachable_attempts`,
    so that a command line says soon that the server is down. Delays double from
    `base_delay_seconds` to `max_delay_seconds`, half of each random. Nothing is begun later than
    `deadline_seconds` after the first try: a server's wish to wait longer is passed on.
    """

    attempts: int = 8
    unreachable_attempts: int = 3
    base_delay_seconds: float = 0.2
    max_delay_seconds: float = 10.0
    deadline_seconds: float = 60.0

    def backoff(self, attempt: int, rng: random.Random) -> float:
        """Seconds to wait after the given try, the first being 1."""
        full = self.base_delay_seconds * 2.0 ** min(attempt - 1, 30)
        return min(full, self.max_delay_seconds) * (0.5 + 0.5 * rng.random())

    def next_delay(
        self, error: Retryable, attempt: int, *, repeatable: bool, rng: random.Random
    ) -> float | None:
        """Seconds to wait before trying again after `error`; None: it is final.

        `repeatable` tells whether the request does no harm when it is done twice.
        """
        if isinstance(error, ServerBusy):
            not_begun = error.status == 429 or (
                error.status == 503 and error.retry_after_seconds is not None
            )
            allowed, most = repeatable or not_begun, self.attempts
        else:
            allowed, most = repeatable, min(self.attempts, self.unreachable_attempts)
        if not allowed or attempt >= most:
            return None
        return max(self.backoff(attempt, rng), error.retry_after_seconds or 0.0)
