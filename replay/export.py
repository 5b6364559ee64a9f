"""Minari data sets from ours and back, without loss (extra `minari`).

Minari stores T + 1 observations and T actions of an episode of T steps: our rows less the zeros of
the first action and reward. Its infos carry the telemetry, T + 1 values of each. Its default
compresses images as JPEG, which no world model should be trained on by accident: here it is off.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from gymnasium import spaces

from common.errors import UserError
from common.files import to_plain
from replay.schema import ACTION_SIZE, OBSERVATION_SHAPE, Attributes, Episode

if TYPE_CHECKING:
    from gymnasium.envs.registration import EnvSpec
    from minari import MinariDataset

_FLOOR = {"action": np.zeros((1, ACTION_SIZE), np.float32), "reward": np.zeros(1, np.float32)}
"""What our first row holds and Minari leaves out."""

_ID = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9_-]{0,79}/)*[A-Za-z0-9][A-Za-z0-9_-]{0,79}-v\d{1,9}")

NAMESPACE = "namespace_metadata.json"
"""The file by which Minari knows a group of data sets."""


def check_id(dataset_id: str) -> None:
    """Raise `UserError` unless `dataset_id` is a Minari id with a version, such as "racing/d1-v0".

    Minari itself creates data sets without a version, cannot load them, and then fails to list any.
    """
    if not _ID.fullmatch(dataset_id):
        raise UserError(
            f"id={dataset_id}: a Minari id ends in -v<number> and may have groups before its name, "
            "all of letters, digits, _ and -, such as racing/d1-v0"
        )


def export_minari(
    episodes: Iterable[Episode],
    attributes: Attributes,
    dataset_id: str,
    root: str | os.PathLike,
    env: EnvSpec | None = None,
) -> MinariDataset:
    """Write episodes as the Minari data set `dataset_id` (such as "racing/d1-v0") below `root`.

    An episode that was cut while recording is marked as truncated, as Minari knows no other end;
    its option `cut` remembers. Episodes are written one by one: memory holds one. The data set is
    made in a hidden directory of `root` and moved into place when it is whole, so an export that
    fails leaves nothing behind.

    Args:
        env: of the environment that `recover_environment()` should make; None for none.

    Raises:
        UserError: no Minari, an id that is none, a data set that exists, or a `root` that cannot
            be written to.
    """
    minari = _minari()
    check_id(dataset_id)
    place = Path(root)
    target = place / dataset_id
    if target.exists():
        raise UserError(f"{target} exists: choose another id or out, or remove it first")
    for parent in target.relative_to(place).parents:
        if (place / parent / "data").is_dir():
            raise UserError(
                f"id={dataset_id}: {place / parent} is a data set and cannot hold others"
            )
    try:
        place.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=".export-", dir=place))
    except OSError as error:
        raise UserError(f"cannot write to {place}: {error.strerror}; choose another out") from None
    try:
        with _datasets_at(temporary), warnings.catch_warnings(action="ignore"):  # missing author
            data = minari.create_dataset_from_buffers(
                dataset_id,
                [],
                env=env,
                action_space=spaces.Box(-np.inf, np.inf, (ACTION_SIZE,), np.float32),
                observation_space=spaces.Box(0, 255, OBSERVATION_SHAPE, np.uint8),
                data_format="hdf5",
                jpeg_encoding=False,
                description=json.dumps(to_plain(asdict(attributes))),
            )
            data.storage.update_episodes(map(_to_buffer, episodes))
        target.parent.mkdir(parents=True, exist_ok=True)
        for made in temporary.rglob(NAMESPACE):
            namespace = place / made.relative_to(temporary)
            if not namespace.exists():
                made.rename(namespace)
        (temporary / dataset_id).rename(target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    with _datasets_at(root):
        return minari.load_dataset(dataset_id)


def import_minari(dataset_id: str, root: str | os.PathLike) -> Iterator[Episode]:
    """The episodes of a data set that `export_minari` wrote, equal to what it was given.

    Raises:
        UserError: no Minari, or no such data set.
    """
    minari = _minari()
    check_id(dataset_id)
    with _datasets_at(root):
        try:
            data = minari.load_dataset(dataset_id)
        except (FileNotFoundError, ValueError) as error:
            raise UserError(f"{root} has no Minari data set {dataset_id!r}: {error}") from None
    for number in range(data.total_episodes):
        (stored,) = data.storage.get_episodes([number])
        (about,) = data.storage.get_episode_metadata([number])
        options = about["options"]
        ends = np.zeros((2, len(stored["observations"])), np.bool_)
        if not options["cut"]:
            ends[0, 1:], ends[1, 1:] = stored["terminations"], stored["truncations"]
        yield Episode(
            observation=stored["observations"],
            action=np.concatenate([_FLOOR["action"], stored["actions"]]),
            reward=np.concatenate([_FLOOR["reward"], stored["rewards"]]),
            terminated=ends[0],
            truncated=ends[1],
            telemetry=stored["infos"] or {},
            track_seed=int(options["track_seed"]),
            direction=int(options["direction"]),
            scenario=str(options["scenario"]),
        )


def _to_buffer(episode: Episode):
    from minari.data_collector import EpisodeBuffer

    cut = not (episode.terminated[-1] or episode.truncated[-1])
    truncated = episode.truncated[1:].copy()
    truncated[-1:] |= cut
    return EpisodeBuffer(
        options={
            "track_seed": episode.track_seed,
            "direction": episode.direction,
            "scenario": episode.scenario,
            "cut": bool(cut),
        },
        observations=episode.observation,
        actions=episode.action[1:],
        rewards=episode.reward[1:],
        terminations=episode.terminated[1:],
        truncations=truncated,
        infos=dict(episode.telemetry),
    )


def _minari():
    try:
        import minari
    except ModuleNotFoundError:
        raise UserError("Minari is missing; get it: pip install -e '.[minari]'") from None
    return minari


@contextmanager
def _datasets_at(root: str | os.PathLike) -> Iterator[None]:
    """Minari finds its data sets by an environment variable only."""
    name = "MINARI_DATASETS_PATH"
    before = os.environ.get(name)
    os.environ[name] = str(Path(root).resolve())
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
