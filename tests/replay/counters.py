"""Episodes that count: what every array of a row must hold follows from its pixels alone."""

import dataclasses
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from replay import Attributes, DataSet, Episode, ShardWriter
from replay.schema import OBSERVATION_SHAPE, TELEMETRY

ATTRIBUTES = Attributes(
    environment={"preset": "race"},
    reward={"progress": 1.0},
    camera={"zoom": 2.7},
    action_repeat=1,
    policy="counter",
    code="0" * 64,
)


def attributes(**changes) -> Attributes:
    return dataclasses.replace(ATTRIBUTES, **changes)


def episode(number: int, length: int, telemetry: Iterable[str] = TELEMETRY) -> Episode:
    """An episode of `length` rows; the first pixel of row t is (number, t, 0)."""
    step = np.arange(length, dtype=np.float32)
    observation = np.full((length, *OBSERVATION_SHAPE), number, np.uint8)
    observation[:, 0, 0, 1] = step
    observation[:, 0, 0, 2] = 0
    last = np.arange(length) == length - 1
    moved = step > 0
    return Episode(
        observation=observation,
        action=np.stack([step, moved * number, step / 2], 1).astype(np.float32),
        reward=moved * (number + step),
        terminated=last & moved & (number % 2 == 0),
        truncated=last & moved & (number % 2 == 1),
        telemetry={name: step + 100 * number + 100_000 * i for i, name in enumerate(telemetry)},
        track_seed=10_000 + number,
        direction=number % 2,
        scenario="counter",
    )


def write(
    root: Path,
    lengths: list[int],
    *,
    first: int = 0,
    max_rows: int = 20,
    about: Attributes = ATTRIBUTES,
) -> list[Episode]:
    """Write episodes of these lengths, numbered from `first`, as data set D, split train."""
    episodes = [episode(first + i, length) for i, length in enumerate(lengths)]
    with ShardWriter(root, "D", "train", about, max_rows=max_rows) as writer:
        for item in episodes:
            writer.add(item)
    return episodes


def check_rows(batch: dict[str, np.ndarray], lengths: dict[int, int]) -> None:
    """Every array (..., T, ...) agrees with the pixels; episodes have `lengths` by number."""
    pixel = batch["observation"][..., 0, 0, :].astype(np.float32)
    number, step = pixel[..., 0], pixel[..., 1]
    moved = step > 0
    np.testing.assert_array_equal(batch["observation"][..., -1, -1, 0], number)
    np.testing.assert_array_equal(batch["is_first"], ~moved)
    np.testing.assert_array_equal(
        batch["action"], np.stack([step, moved * number, step / 2], axis=-1)
    )
    np.testing.assert_array_equal(batch["reward"], moved * (number + step))
    last = step == np.vectorize(lengths.get)(number) - 1
    np.testing.assert_array_equal(batch["terminated"], last & moved & (number % 2 == 0))
    np.testing.assert_array_equal(batch["truncated"], last & moved & (number % 2 == 1))
    for i, name in enumerate(TELEMETRY):
        np.testing.assert_array_equal(batch[f"telemetry/{name}"], step + 100 * number + 100_000 * i)
    # A row follows its predecessor in the same episode, or starts one after its predecessor's last.
    follows = (number[..., 1:] == number[..., :-1]) & (step[..., 1:] == step[..., :-1] + 1)
    assert (follows | (last[..., :-1] & ~moved[..., 1:])).all()


def open_data(root: Path, **options) -> DataSet:
    return DataSet(root, "D", "train", **options)


def check_all(data: DataSet) -> None:
    """Every row of `data` is what its pixels say."""
    numbers = (data.episodes["track_seed"] - 10_000).tolist()
    lengths = dict(zip(numbers, data.episodes["length"].tolist(), strict=True))
    check_rows(data.window(0, data.rows), lengths)


def visible(path: Path) -> list[str]:
    return sorted(p.name for p in path.iterdir() if p.name != ".lock")
