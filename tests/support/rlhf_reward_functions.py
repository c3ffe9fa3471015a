"""Reward functions as users write them, well and badly; the grader's processes import this."""

import os
import sys

from rlhf.graders.protocol import Refused


def length(prompt: str, response: str) -> float:
    return float(len(response))


def in_parts(prompt: str, response: str, answer: str = "") -> dict[str, float]:
    right = float(response == answer)
    return {"reward": right - 0.1, "right": right, "length": len(response)}


def of_the_context(prompt: str, response: str, **context) -> float:
    return float(context["wanted"])


def printing(prompt: str, response: str) -> float:
    print("hello from the reward function")
    sys.stdout.flush()
    return 1.0


def raising(prompt: str, response: str) -> float:
    raise RuntimeError("cannot judge this")


def refusing(prompt: str, response: str) -> float:
    raise Refused("not my subject")


def hanging(prompt: str, response: str) -> float:
    if response != "hang":
        return 1.0
    while True:
        pass


def crashing(prompt: str, response: str) -> float:
    os._exit(3)


def not_a_number(prompt: str, response: str) -> float:
    return float("nan")


def infinite(prompt: str, response: str) -> float:
    return float("inf")


def nothing(prompt: str, response: str) -> None:
    return None


def huge(prompt: str, response: str) -> dict[str, float]:
    raise RuntimeError("x" * (10 << 20))


def flooding(prompt: str, response: str) -> float:
    """Writes ten megabytes where only frames belong."""
    os.write(1, b"y" * (10 << 20))
    return 1.0


async def later(prompt: str, response: str) -> float:
    return 2.0


def wrong_signature(text: str) -> float:
    return 0.0
