"""Batches for the world model: which rows of which data set, as tensors with the heads' targets."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from common.errors import UserError
from common.schema import config_class
from replay import DataSet, WindowSampler
from replay.sampler import corner_strata
from rssm.config import CONTINUE, MOTION, OFF, REGRESSED, REWARD, HeadConfig
from rssm.motion import motion_between

POSE = ("x", "y", "heading")


@config_class
class DataConfig:
    """What to train on.

    Attributes:
        root: directory of the data sets.
        dataset: name below it.
        train, val: its splits.
        length: rows per window.
        batch: windows per update, over all processes.
        micro_batch: windows per forward and backward pass; gradients of a batch add up. Equal to
            the batch by default.
        strata: rad; windows are drawn with equal shares from the classes that these corner angles
            divide. Empty draws every window alike.
        on_damage: refuse a data set with a damaged shard, or skip the shard.
        check: compare the hash of every shard first (a second per GB).
    """

    root: str = "data"
    dataset: str = "D4_main"
    train: str = "train"
    val: str = "val"
    length: Annotated[int, Field(ge=2, le=4096)] = 50
    batch: Annotated[int, Field(ge=1, le=4096)] = 8
    micro_batch: Annotated[int, Field(ge=1)] | None = None
    strata: tuple[Annotated[float, Field(gt=0)], ...] = ()
    on_damage: Literal["refuse", "skip"] = "refuse"
    check: bool = True

    def __post_init__(self) -> None:
        if self.micro_batch is not None and self.batch % self.micro_batch:
            raise ValueError(
                f"micro_batch divides the batch of {self.batch}, unlike {self.micro_batch}"
            )
        if list(self.strata) != sorted(set(self.strata)):
            raise ValueError(f"strata grow, unlike {list(self.strata)}")

    @property
    def passes(self) -> int:
        """Forward and backward passes per update."""
        return self.batch // (self.micro_batch or self.batch)

    def open(self, split: str) -> DataSet:
        """One split of the data set."""
        return DataSet(self.root, self.dataset, split, self.on_damage, check=self.check)


class Batch(NamedTuple):
    """Windows of rows, B x T, as the model learns from them.

    Attributes:
        action: (B, T, actions) float; row t led to frame t.
        is_first: (B, T) bool, where an episode begins.
        targets: (B, T) float by name of head, in the data's units; continue and off are 0 or 1.
        observation: (B, T, size, size, channels) uint8; None if only the rest was read.
        before: (B, size, size, channels) uint8, the frame before each window, or the first one
            where an episode begins: nothing changed there, as the car stands still.
    """

    action: Tensor
    is_first: Tensor
    targets: dict[str, Tensor]
    observation: Tensor | None = None
    before: Tensor | None = None

    def to(self, device: torch.device | str) -> Batch:
        """The same on `device`."""
        return self._map(lambda tensor: tensor.to(device))

    def first(self, windows: int) -> Batch:
        """The first few windows."""
        return self._map(lambda tensor: tensor[:windows])

    def _map(self, function: Callable[[Tensor], Tensor]) -> Batch:
        parts = {
            name: function(part) if isinstance(part, Tensor) else part
            for name, part in self._asdict().items()
        }
        targets = {name: function(target) for name, target in self.targets.items()}
        return Batch(**parts | {"targets": targets})

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor by name, to be saved."""
        parts = {name: part for name, part in self._asdict().items() if isinstance(part, Tensor)}
        return parts | {f"targets/{name}": target for name, target in self.targets.items()}


class Reader:
    """Windows of a data set as tensors, with a target for every head.

    Args:
        data: an open split.
        telemetry: names to regress; those of `MOTION` are derived from the recorded pose.
        off: whether there is an off-track label to read.

    Raises:
        UserError: a target that the data set cannot give.
    """

    def __init__(self, data: DataSet, telemetry: Sequence[str], off: bool) -> None:
        has = available(data)
        needed = [*telemetry, *(["off_track"] if off else [])]
        absent = [name for name in needed if name not in has]
        if absent:
            raise UserError(
                f"{data.path} was recorded without {', '.join(absent)}, so no head can learn it; "
                "leave it out of heads.telemetry (off_track: heads.off_track=false); null takes "
                "what there is"
            )
        self.data, self.telemetry, self.off = data, tuple(telemetry), off
        moved = _motion(data) if set(telemetry) & set(MOTION) else {}
        self._is_first = data.column("is_first")
        self._targets = {REWARD: data.column("reward")}
        self._targets[CONTINUE] = (~data.column("terminated")).astype(np.float32)
        for name in telemetry:
            self._targets[name] = moved[name] if name in moved else data.column(_column(name))
        if off:
            self._targets[OFF] = (data.column(_column("off_track")) == 1).astype(np.float32)

    def batch(self, starts: NDArray[np.int64], length: int, *, frames: bool = True) -> Batch:
        """Windows from the rows `starts` (B,) on, `length` rows each; without observations if
        `frames` is false."""
        names = ["action", "is_first", *(["observation"] if frames else [])]
        windows = self.data.windows(starts, length, names)
        rows = np.asarray(starts)[:, None] + np.arange(length)
        observation = before = None
        if frames:
            earlier = rows[:, 0] - ~self._is_first[rows[:, 0]]
            before = self.data.windows(earlier, 1, ["observation"])["observation"][:, 0]
            observation = torch.from_numpy(windows["observation"])
            before = torch.from_numpy(before)
        return Batch(
            action=torch.from_numpy(windows["action"]),
            is_first=torch.from_numpy(windows["is_first"]),
            targets={
                name: torch.from_numpy(column[rows]) for name, column in self._targets.items()
            },
            observation=observation,
            before=before,
        )

    def statistics(self) -> dict[str, tuple[float, float]]:
        """Mean and standard deviation of every regression target over the rows of a step."""
        rows = ~self.data.column("is_first")
        statistics = {}
        for name in (REWARD, *self.telemetry):
            values = self._targets[name][rows].astype(np.float64)
            statistics[name] = (float(values.mean()), float(values.std()))
        return statistics


def available(data: DataSet) -> set[str]:
    """Telemetry that a data set can feed to heads: what was recorded, and motion from the pose."""
    has = set(data.attributes.telemetry)
    return has | set(MOTION) if has.issuperset(POSE) else has


def choose_heads(config: HeadConfig, data: DataSet) -> HeadConfig:
    """`config` with its telemetry and the off-track head chosen by what the data can feed."""
    has = available(data)
    telemetry = config.telemetry
    if telemetry is None:
        telemetry = tuple(name for name in REGRESSED if name in has)
    if config.motion:
        telemetry = (*telemetry, *MOTION)
    off = "off_track" in has if config.off_track is None else config.off_track
    return replace(config, telemetry=telemetry, off_track=off, motion=False)


def _column(name: str) -> str:
    return f"telemetry/{name}"


def _motion(data: DataSet) -> dict[str, NDArray[np.float32]]:
    """(rows,) by name of `MOTION`: how the car came to each row; 0 where nothing led to it."""
    rows = np.arange(data.rows)
    before = np.maximum(rows - 1, 0)
    moved = motion_between(*(data.column(_column(name)) for name in POSE), before, rows)
    inside = ~data.column("is_first")
    return {
        name: (values * inside).astype(np.float32)
        for name, values in zip(MOTION, moved, strict=True)
    }


class MicroBatches:
    """The micro-batches of a run, numbered through: a pure function of (seed, number, data).

    Args:
        reader: of the training split.
        config: sizes.
        seed: root seed of the sampler.
        updates: in the whole run.
        rank, world: this process and how many share every batch.

    Attributes:
        seconds: spent on reading so far.
    """

    def __init__(
        self,
        reader: Reader,
        config: DataConfig,
        seed: int,
        updates: int,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        data, strata = reader.data, None
        if config.strata:
            if "corner_angle" not in data.attributes.telemetry:
                raise UserError(f"{data.path} has no corner_angle to stratify by")
            strata = corner_strata(data.column(_column("corner_angle")), config.strata)
        if config.batch // config.passes % world:
            raise UserError(
                f"micro-batches of {config.batch // config.passes} windows cannot be split over "
                f"{world} processes"
            )
        self.reader, self.config, self.updates = reader, config, updates
        self.sampler = WindowSampler(data.episodes, config.length, config.batch, seed, strata)
        self.rank, self.world = rank, world
        self.seconds = 0.0

    def __len__(self) -> int:
        return self.updates * self.config.passes

    def __getitem__(self, number: int) -> Batch:
        started = time.perf_counter()
        update, part = divmod(number, self.config.passes)
        starts = self.sampler.indices(update)
        share = len(starts) // self.config.passes // self.world
        first = (part * self.world + self.rank) * share
        batch = self.reader.batch(starts[first : first + share], self.config.length)
        self.seconds += time.perf_counter() - started
        return batch
