"""Which track a world drives next: a pure function of (root seed, world, episode).

With a pool, the worlds of one `track_reuse` block of episodes share `track_pool` tracks, so a batch
of a thousand worlds needs no thousand textures; the next block brings new ones. Nothing depends on
how many worlds there are or on the order in which their episodes end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from common.errors import UserError
from common.seeding import SPLITS, check_training_seed, derive, whole_seed
from envs.racing.config import EnvConfig
from envs.racing.sim.pool import PaintedTrack, TrackPool
from envs.racing.sim.procedural import procedural_points
from envs.racing.sim.track import HALF_WIDTH, Track, build_track, carracing_points

Key = tuple[int, str]
"""A track seed and a driving direction."""


class Start(NamedTuple):
    """Where and how a car starts.

    Attributes:
        lap: share of the lap before it, [0, 1).
        offset: to the right of the road's middle, in half-widths.
        heading: against the road's, radians, counter-clockwise.
        speed: along its heading, units/s.
    """

    lap: float = 0.0
    offset: float = 0.0
    heading: float = 0.0
    speed: float = 0.0


GRID = Start()
"""Standing on the starting line, as CarRacing-v3's car does."""
START_OFFSET = 1.5
START_SPEED = 70.0
"""Bounds of random starts: half a half-width into the grass, and faster than most bends allow."""


def random_start(seed: int) -> Start:
    """A start anywhere on the lap.

    The offset is uniform in +-START_OFFSET and the speed in [0, START_SPEED]. The heading is pi
    times the cube of a uniform number in [-1, 1]: mostly near the road's, sometimes backward.
    """
    lap, offset, heading, speed = np.random.default_rng(seed).random(4)
    return Start(
        lap,
        START_OFFSET * (2 * offset - 1),
        math.pi * (2 * heading - 1) ** 3,
        START_SPEED * speed,
    )


def make_track(config: EnvConfig, seed: int, direction: str = "ccw") -> Track:
    """The track that a configuration makes from a seed."""
    if config.tracks == "procedural":
        points, half_width = procedural_points(seed, config.difficulty)
    else:
        points, half_width = carracing_points(seed), HALF_WIDTH
    return build_track(
        points,
        half_width=half_width * config.width_scale,
        direction=direction,
        seed=seed,
        generator=config.tracks,
    )


class TrackSchedule:
    """Draws, builds and prefetches tracks.

    Args:
        config: the environment's configuration.
        worlds: number of worlds.
        root: root seed.
        split: split of track seeds to draw from; "train" also refuses explicit seeds of others.
            None allows any explicit seed and draws from "train".
        track_seeds: explicit seeds; world w drives number w, w + worlds, ... of them, cyclically.
        where: the environment's name for messages.

    Raises:
        UserError: a seed that the split forbids.
    """

    def __init__(
        self,
        config: EnvConfig,
        worlds: int,
        root: int,
        split: str | None,
        track_seeds: Sequence[int] | None,
        where: str,
    ) -> None:
        if split is not None and split not in SPLITS:
            raise UserError(f"{where}: split is one of {', '.join(SPLITS)}, not {split!r}")
        self._config = config
        self._worlds = worlds
        self.root = root
        self._split = split
        self._where = where
        self._explicit: list[int] | None = None
        if track_seeds is not None:
            self.set_explicit(track_seeds)
        capacity = 2 * config.track_pool if config.track_pool else 2 * worlds
        self._pool = TrackPool(self._build, capacity)

    def _build(self, key: Key) -> PaintedTrack:
        seed, direction = key
        return PaintedTrack(make_track(self._config, seed, direction))

    def set_root(self, root: int) -> None:
        """Draw from another root seed from now on."""
        self.root = root

    def set_explicit(self, seeds: Sequence[int] | None) -> None:
        """Drive these track seeds in order instead of drawing; None draws again."""
        if seeds is None:
            self._explicit = None
            return
        if isinstance(seeds, str) or not len(seeds):
            raise UserError(f"{self._where}: track_seeds is a list of track seeds, not {seeds!r}")
        for seed in seeds:
            self.check(seed)
        self._explicit = [int(seed) for seed in seeds]

    def check(self, seed: int) -> None:
        """Refuse a track seed that this schedule may not drive, naming seed and environment."""
        try:
            whole_seed(seed)
            if self._split == "train":
                check_training_seed(seed)
        except UserError as error:
            raise UserError(f"{self._where}: {error}") from None

    def key(self, world: int, episode: int) -> Key:
        """Track seed and direction of a world's episode."""
        if self._explicit is not None:
            seed = self._explicit[(world + episode * self._worlds) % len(self._explicit)]
        else:
            first, last = SPLITS[self._split or "train"]
            if self._config.track_pool:
                block = episode // self._config.track_reuse
                place = derive(self.root, "place", world, episode) % self._config.track_pool
                draw = derive(self.root, "pool", block, place)
            else:
                draw = derive(self.root, "track", world, episode)
            seed = first + draw % (last - first + 1)
        direction = self._config.direction
        if direction == "both":
            draw = derive(self.root, "direction", world, episode)
            direction = "cw" if draw % 2 else "ccw"
        return seed, direction

    def direction(self, world: int, episode: int) -> str:
        """Driving direction of a world's episode, for a seed that was named from outside."""
        return self.key(world, episode)[1]

    def start(self, world: int, episode: int) -> Start:
        """How the car of a world's episode starts."""
        share = self._config.random_start
        if share == 0:
            return GRID
        lot = np.random.default_rng(derive(self.root, "start", world, episode)).random()
        if lot >= share:
            return GRID
        return random_start(derive(self.root, "start pose", world, episode))

    def get(self, key: Key) -> PaintedTrack:
        """The track of a key; waits for the builder if need be."""
        return self._pool.get(key)

    def prefetch(self, world: int, episode: int) -> None:
        """Have a later episode's track built in the background."""
        self._pool.prefetch(self.key(world, episode))

    def close(self) -> None:
        """Stop the background builder."""
        self._pool.close()


def keys_to_arrays(keys: Sequence[Key]) -> dict[str, np.ndarray]:
    """Keys as arrays for a snapshot."""
    return {
        "track_seeds": np.array([seed for seed, _ in keys], np.int64),
        "clockwise": np.array([direction == "cw" for _, direction in keys]),
    }


def keys_from_arrays(state: dict[str, np.ndarray]) -> list[Key]:
    """The inverse of `keys_to_arrays`."""
    return [
        (int(seed), "cw" if clockwise else "ccw")
        for seed, clockwise in zip(state["track_seeds"], state["clockwise"], strict=True)
    ]
