"""Metric rows mirrored to a dashboard. The run directory stays the truth; this is a copy of it."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

from common.errors import ConfigError
from common.schema import config_class


@config_class
class LoggerConfig:
    """Where rows of metrics go besides metrics.jsonl.

    Attributes:
        kind: none, wandb or tensorboard.
        project: name of the wandb project.
        mode: wandb only; offline writes into the run directory and sends nothing.
    """

    kind: Literal["none", "wandb", "tensorboard"] = "none"
    project: str = "dreamracer"
    mode: Literal["offline", "online"] = "offline"


class Mirror(Protocol):
    """Takes the same rows as metrics.jsonl."""

    def log(self, row: Mapping[str, Any], step: int) -> None: ...

    def close(self) -> None: ...


def open_mirror(
    config: LoggerConfig, directory: Path, name: str, settings: Mapping[str, Any]
) -> Mirror:
    """The dashboard that `config` asks for, writing below `directory`.

    `settings` is the run's configuration, shown beside its curves. Raises `ConfigError` if the
    package is missing or the service refuses.
    """
    match config.kind:
        case "wandb":
            return _Wandb(config, directory, name, settings)
        case "tensorboard":
            return _TensorBoard(directory)
    return _Nothing()


class _Nothing:
    def log(self, row: Mapping[str, Any], step: int) -> None:
        pass

    def close(self) -> None:
        pass


class _Wandb:
    def __init__(
        self, config: LoggerConfig, directory: Path, name: str, settings: Mapping[str, Any]
    ) -> None:
        os.environ.setdefault("WANDB_SILENT", "true")  # its banner would tear the display
        try:
            import wandb

            self._run = wandb.init(
                project=config.project,
                name=name,
                dir=directory,
                mode=config.mode,
                config=dict(settings),
            )
        except ImportError:
            raise _missing("wandb") from None
        except wandb.errors.Error as error:
            raise ConfigError(
                f"logger=wandb: {error}; logger.mode=offline needs no account"
            ) from None

    def log(self, row: Mapping[str, Any], step: int) -> None:
        self._run.log(dict(row), step=step)

    def close(self) -> None:
        self._run.finish()


class _TensorBoard:
    def __init__(self, directory: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise _missing("tensorboard") from None
        self._writer = SummaryWriter(directory / "tensorboard")

    def log(self, row: Mapping[str, Any], step: int) -> None:
        for name, value in row.items():
            if isinstance(value, int | float):
                self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


def _missing(package: str) -> ConfigError:
    return ConfigError(f"logger={package} needs the package {package}: pip install {package}")
