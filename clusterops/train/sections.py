"""Long stretches inside a step, such as evaluation, that must not make a notice wait."""

from collections.abc import Callable


class SectionCut(Exception):
    """Ends the body of a section early; never leaves the section itself."""


class Section:
    """What `run.section(...)` gives to its body. Call `poll` often: once a batch, for instance."""

    def __init__(self, name: str, poll: Callable[[], None]) -> None:
        self.name = name
        self.cut = False
        """Whether the body was ended early; its results are then incomplete."""
        self._poll = poll

    def poll(self) -> None:
        """Serves a notice now, if there is one: saves, and leaves when told to.

        In a section that all ranks take part in, every rank calls it equally often.
        """
        self._poll()
