"""What a session is told when it begins. `sessions.session` documents each."""

from dataclasses import dataclass
from pathlib import Path

from clusterops.train.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """The arguments of `session`."""

    total_steps: int | None = None
    checkpoint_dir: Path | None = None
    save_every_steps: int | None = None
    save_every_seconds: float | None = None
    keep: int = 2
    keep_every_seconds: float | None = None
    adopt: bool = False

    def checked(self) -> "SessionOptions":
        """The same options.

        Raises:
            ConfigurationError: one is impossible; the message names it.
        """
        for name in (
            "total_steps",
            "save_every_steps",
            "save_every_seconds",
            "keep",
            "keep_every_seconds",
        ):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigurationError(f"{name} must be more than 0, not {value}")
        if self.save_every_steps is not None and self.save_every_seconds is not None:
            raise ConfigurationError("give save_every_steps or save_every_seconds, not both")
        return self
