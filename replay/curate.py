"""Data sets made of others: whole ones joined, or episodes chosen by a rule.

Shards never change, so joining needs no copy: the new data set gets a hard link to every shard and
an index line of its own. It is complete in itself (an index that pointed into another directory
would break when that one is moved or deleted) and costs no disk.
"""

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import numpy as np

from common.errors import UserError
from common.files import append_jsonl, read_jsonl, replacing
from replay.dataset import DataSet
from replay.index import INDEX, read_index, split_path
from replay.schema import Episode, ShardInfo
from replay.shards import ShardWriter

_NO_LINKS = {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS}


def read_episode(data: DataSet, number: int) -> Episode:
    """Episode `number` of a data set, as it was recorded."""
    about = data.episodes[number]
    rows = data.window(int(about["start"]), int(about["length"]))
    return Episode(
        observation=rows["observation"],
        action=rows["action"],
        reward=rows["reward"],
        terminated=rows["terminated"],
        truncated=rows["truncated"],
        telemetry={name: rows[f"telemetry/{name}"] for name in data.attributes.telemetry},
        track_seed=int(about["track_seed"]),
        direction=int(about["direction"]),
        scenario=str(about["scenario"]),
    )


def read_episodes(data: DataSet) -> Iterator[Episode]:
    """Every episode of a data set, one at a time."""
    return (read_episode(data, number) for number in range(len(data.episodes)))


def known_shards(root: str | os.PathLike, dataset: str, split: str) -> list[ShardInfo]:
    """The whole shards of a split; none if there is no such split yet."""
    path = split_path(root, dataset, split)
    return read_index(path) if read_jsonl(path / INDEX) else []


def link_shards(root: str | os.PathLike, source: str, target: str, split: str) -> int:
    """Make the shards that data set `target` lacks of `source` its own; returns the rows added.

    File systems without hard links get copies. Can be repeated, also after a kill, and when
    `source` has grown.

    Raises:
        UserError: no such source, or a target that is its own source.
    """
    if source == target:
        raise UserError(f"data set {target} cannot be a part of itself")
    origin, place = split_path(root, source, split), split_path(root, target, split)
    shards = read_index(origin)
    place.mkdir(parents=True, exist_ok=True)
    added = 0
    with _alone(place / ".link.lock"):
        known = {info.file for info in known_shards(root, target, split)}
        for info in shards:
            if info.file not in known:
                _link(origin / info.file, place / info.file)
                append_jsonl(place / INDEX, asdict(info))
                added += info.rows
    return added


def choose_episodes(
    data: DataSet, accepts: Callable[[Mapping[str, np.ndarray]], bool], rows: int
) -> list[int]:
    """Numbers of the episodes that `accepts` takes, in order, up to `rows` rows in all.

    `accepts` is given an episode's telemetry, name -> (T,) float32.
    """
    columns = {name: data.column(f"telemetry/{name}") for name in data.attributes.telemetry}
    chosen: list[int] = []
    for number, about in enumerate(data.episodes):
        first, length = int(about["start"]), int(about["length"])
        telemetry = {name: values[first : first + length] for name, values in columns.items()}
        if length <= rows and accepts(telemetry):
            chosen.append(number)
            rows -= length
    return chosen


def copy_episodes(data: DataSet, numbers: list[int], writer: ShardWriter) -> None:
    """Write some episodes of `data` into shards of their own."""
    for number in numbers:
        writer.add(read_episode(data, number))


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One process at a time: two that link the same shard would index it twice."""
    with open(path, "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except FileExistsError:
        return  # linked by a process that was killed before its index line
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        with replacing(target) as temporary:
            shutil.copyfile(source, temporary)
