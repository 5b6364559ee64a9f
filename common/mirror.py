"""Copies rows of metrics to a dashboard. The run directory stays the original."""

import importlib.util
import os
import sys
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
        mode: for wandb only; offline writes into the run directory and sends nothing.
    """

    kind: Literal["none", "wandb", "tensorboard"] = "none"
    project: str = "dreamracer"
    mode: Literal["offline", "online"] = "offline"


class Mirror(Protocol):
    """A dashboard: it takes the same rows as metrics.jsonl. `place` says where to look at them."""

    place: str

    def log(self, row: Mapping[str, Any], step: int) -> None: ...

    def close(self) -> None: ...


def check_logger(config: LoggerConfig) -> None:
    """Raise `ConfigError` if the dashboard cannot be used: no package, or no key for wandb online.

    Call it before a run directory is made.
    """
    package = {"wandb": "wandb", "tensorboard": "tensorboard"}.get(config.kind)
    if package and not _installed(package):
        raise ConfigError(f"logger={package} needs the package {package}: pip install {package}")
    if config.kind == "wandb" and config.mode == "online":
        import wandb

        os.environ.setdefault("WANDB_SILENT", "true")
        if not wandb.login(prompt=False):
            raise ConfigError(
                "logger.mode=online: wandb has no API key; run `wandb login` first, or leave "
                "logger.mode=offline, which needs no account"
            )


def open_mirror(
    config: LoggerConfig, directory: Path, name: str, settings: Mapping[str, Any]
) -> Mirror:
    """The dashboard that `config` asks for, writing below `directory`.

    `settings` is the run's configuration, shown beside its curves. Raises `ConfigError` as
    `check_logger` does, and if the service refuses.
    """
    check_logger(config)
    match config.kind:
        case "wandb":
            return _Wandb(config, directory, name, settings)
        case "tensorboard":
            return _TensorBoard(directory)
    return Nothing()


class Nothing:
    """Keeps no copy."""

    place = ""

    def log(self, row: Mapping[str, Any], step: int) -> None:
        pass

    def close(self) -> None:
        pass


class _Wandb:
    def __init__(
        self, config: LoggerConfig, directory: Path, name: str, settings: Mapping[str, Any]
    ) -> None:
        import wandb

        os.environ.setdefault("WANDB_SILENT", "true")  # its banner would break the display
        if not {"HOME", "XDG_CACHE_HOME"} & os.environ.keys():
            # Without a cache folder, wandb writes its log to the terminal.
            os.environ["XDG_CACHE_HOME"] = str(directory.absolute() / "wandb" / "cache")
        try:
            self._run = wandb.init(
                project=config.project,
                name=name,
                dir=directory,
                mode=config.mode,
                config=dict(settings),
            )
        except wandb.errors.Error as error:
            raise ConfigError(
                f"logger=wandb: {error}; logger.mode=offline needs no account"
            ) from None
        sync = f"wandb is offline; to send this run: wandb sync {Path(self._run.dir).parent}"
        self.place = f"wandb {self._run.url}" if config.mode == "online" else sync

    def log(self, row: Mapping[str, Any], step: int) -> None:
        self._run.log(dict(row), step=step)

    def close(self) -> None:
        self._run.finish()


class _TensorBoard:
    def __init__(self, directory: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(directory / "tensorboard")
        self.place = f"to look at the curves: tensorboard --logdir {directory / 'tensorboard'}"

    def log(self, row: Mapping[str, Any], step: int) -> None:
        for name, value in row.items():
            if isinstance(value, int | float):
                self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


def _installed(package: str) -> bool:
    if package in sys.modules:
        return sys.modules[package] is not None
    return importlib.util.find_spec(package) is not None
