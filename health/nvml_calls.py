"""One round of questions to one GPU, whatever it answers. Runs in the child process only."""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pynvml

from health.events import Quantity
from health.nvml_answers import CANNOT_TELL, Answer, Implausible
from health.nvml_links import counters, states
from health.nvml_messages import Device, Values
from health.nvml_questions import QUESTIONS

# Of several errors for one GPU the one that says most.
_GRAVEST = (
    pynvml.NVML_ERROR_GPU_IS_LOST,
    16,  # reset required
    18,  # driver replaced underneath
)
_LEAST = -(1 << 31)
T = TypeVar("T")


class Questioner:
    """Asks one GPU after the other."""

    def __init__(self, wanted: Callable[[], bool]) -> None:
        """`wanted` says before each question whether to go on."""
        self._wanted = wanted
        self._error = 0
        self._implausible = 0

    def ask(self, device: Device, handle: Any) -> Values:
        """All values of one GPU. Never raises on what NVML answers."""
        self._error = self._implausible = 0
        values: dict[str, int | None] = {}
        counted: dict[str, int] = {}
        for question in QUESTIONS:
            answers = self._answers(question.ask, handle, len(question.answers))
            for (name, most), answer in zip(question.answers, answers, strict=True):
                believed = self._believed(answer, most)
                if isinstance(name, Quantity):
                    values[name] = believed
                elif believed is not None:
                    counted[name] = believed
        links = self._tried(lambda: states(handle)) or []
        if links:
            counted.update(self._tried(lambda: counters(handle, len(links))) or {})
        return Values(
            device,
            self._error,
            values,
            counted,
            self._implausible,
            links_active=sum(links) if links else None,
            links_there=len(links),
        )

    def _answers(
        self, ask: Callable[[Any], Sequence[Answer]], handle: Any, number: int
    ) -> Sequence[Answer]:
        return self._tried(lambda: ask(handle)) or [None] * number

    def _tried(self, question: Callable[[], T]) -> T | None:
        if not self._wanted():
            return None
        try:
            return question()
        except pynvml.NVMLError as error:
            self._failed(int(error.value))
        except AttributeError:
            pass  # the binding is older than the question
        except (Implausible, ValueError, OverflowError, TypeError, ctypes.ArgumentError):
            self._implausible += 1
        return None

    def _believed(self, answer: Answer, most: int) -> Answer:
        if answer is None:
            return None
        if not _LEAST <= int(answer) <= most:
            self._implausible += 1
            return None
        return int(answer)

    def _failed(self, error: int) -> None:
        if error in CANNOT_TELL or self._error in _GRAVEST:
            return
        if not self._error or error in _GRAVEST:
            self._error = error
