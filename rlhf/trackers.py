"""Where metrics go besides the run folder: TensorBoard, Weights & Biases, trackio, if they are wanted."""

import importlib
from collections.abc import Mapping
from typing import Any, Protocol

from rlhf.config.resolve import ConfigurationInvalid
from rlhf.config.sections import RunConfig
from rlhf.run_folder import RunFolder


class Tracker(Protocol):
    """Takes metrics as they come."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """One step's."""

    def close(self) -> None:
        """Writes what is left."""


class TensorBoard:
    """Event files in the run folder."""

    def __init__(self, folder: RunFolder) -> None:
        module = _needed("torch.utils.tensorboard", "tensorboard")
        self._writer: Any = module.SummaryWriter(str(folder.path / "tensorboard"))

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """One step's."""
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Writes what is left."""
        self._writer.close()


class Logger:
    """wandb, or trackio, which has the same calls."""

    def __init__(self, package: str, config: RunConfig, run_id: str) -> None:
        self._module = _needed(package, package)
        self._module.init(
            project="clusterops-rlhf",
            name=f"{config.name}-{run_id[-8:]}",
            config=config.model_dump(mode="json"),
        )

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """One step's."""
        self._module.log(dict(metrics), step=step)

    def close(self) -> None:
        """Writes what is left."""
        self._module.finish()


def trackers(config: RunConfig, folder: RunFolder, run_id: str) -> list[Tracker]:
    """Those that the configuration asks for.

    Raises:
        ConfigurationInvalid: one's package is not installed.
    """
    wanted = config.reports
    found: list[Tracker] = []
    if wanted.tensorboard:
        found.append(TensorBoard(folder))
    if wanted.wandb:
        found.append(Logger("wandb", config, run_id))
    if wanted.trackio:
        found.append(Logger("trackio", config, run_id))
    return found


def _needed(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigurationInvalid(
            f"reports.{package}=true needs the package {package}: pip install {package}"
        ) from error
