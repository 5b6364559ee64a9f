"""Which track a world drives next, and how its car starts.

Both are pure functions of (root seed, lane, episode). A lane is the world's place under its root
seed: worlds that share a root have lanes 0, 1, 2, ..., and a world that was given a seed of its own
has lane 0 under it. Nothing depends on how many worlds there are or on the order in which
their episodes end.

With a pool, all lanes of a root share `track_pool` tracks for `track_reuse` episodes, so a batch of
a thousand worlds needs no thousand textures; the next block of episodes brings new ones.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from common.errors import UserError
from common.seeding import SPLITS, check_split, check_track_seed, derive, whole_seed
from envs.racing.config import EnvConfig
from envs.racing.sim.handles import KernelTrack
from envs.racing.sim.pool import TrackPool
from envs.racing.sim.procedural import procedural_points
from envs.racing.sim.track import DIRECTIONS, HALF_WIDTH, Track, build_track, carracing_points

T = TypeVar("T", bound=KernelTrack)
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


def _prepared(config: EnvConfig, prepare: Callable[[Track], T], key: Key) -> T:
    seed, direction = key
    return prepare(make_track(config, seed, direction))


class TrackSchedule(Generic[T]):
    """Chooses the track of every world: drawn, named by a seed, or the next of a list.

    Args:
        config: the environment's configuration.
        worlds: number of worlds.
        seed: root seed under which tracks are drawn, of any size; None takes one from the
            operating system's randomness.
        split: split of track seeds to draw from. Every seed that is named must belong to it too.
            None draws from "train" and allows every seed to be named.
        track_seeds: drive these in place of drawn ones: world w drives number w, w + worlds, ... of
            them, cyclically.
        where: the environment's name for messages.
        prepare: makes of a track what `tracks` returns; called on the builder thread as well.

    Raises:
        UserError: a seed that is none, or that the split forbids.
    """

    def __init__(
        self,
        config: EnvConfig,
        worlds: int,
        seed: int | None,
        split: str | None,
        track_seeds: Sequence[int] | None,
        where: str,
        prepare: Callable[[Track], T] = KernelTrack,
    ) -> None:
        self._config = config
        self._worlds = worlds
        self._split = split
        self._where = where
        try:
            check_split(split)
            root = np.random.SeedSequence().entropy if seed is None else whole_seed(seed)
        except UserError as error:
            raise UserError(f"{where}: {error}") from None
        self._explicit: list[int] | None = None
        if track_seeds is not None:
            if isinstance(track_seeds, str) or not len(track_seeds):
                raise UserError(f"{where}: track_seeds is a list of track seeds, not {track_seeds}")
            self._explicit = self._checked(track_seeds)
        self._roots = [root] * worlds
        self._lanes = list(range(worlds))
        self._episodes = [-1] * worlds
        self._keys: list[Key] = [(0, "ccw")] * worlds
        capacity = 2 * config.track_pool if config.track_pool else 2 * worlds
        self._pool = TrackPool(functools.partial(_prepared, config, prepare), capacity)

    @property
    def track_seeds(self) -> np.ndarray:
        """(worlds,) present tracks: int64, or objects (Python's int) if one has over 63 bits."""
        seeds = [seed for seed, _ in self._keys]
        return np.array(seeds, np.int64 if max(seeds) < 2**63 else object)

    def advance(self, which: Iterable[int]) -> None:
        """Go to the next episode in some worlds."""
        for w in which:
            self._episodes[w] += 1
            self._keys[w] = self._key(w, self._episodes[w])

    def reseed(self, seed: int) -> None:
        """Begin anew everywhere: world w drives track seed + w, and later tracks are drawn under
        `seed`, shared between the worlds. Nothing has changed after an error."""
        (root,) = self._whole([seed])
        seeds = self._checked(root + w for w in range(self._worlds))
        self._roots = [root] * self._worlds
        self._lanes = list(range(self._worlds))
        self._begin(range(self._worlds), seeds)

    def name(self, which: Sequence[int], seeds: Sequence[int]) -> None:
        """Begin anew in some worlds: each drives the track of its seed and draws later ones under
        that seed, whatever the other worlds do. Nothing has changed after an error."""
        seeds = self._checked(seeds)
        for w, seed in zip(which, seeds, strict=True):
            self._roots[w], self._lanes[w] = seed, 0
        self._begin(which, seeds)

    def name_from(self, which: Sequence[int], seed: int) -> None:
        """`name` with track seed + w in world w."""
        (first,) = self._whole([seed])
        self.name(which, [first + w for w in which])

    def _begin(self, which: Iterable[int], seeds: Sequence[int]) -> None:
        for w, seed in zip(which, seeds, strict=True):
            self._episodes[w] = 0
            _, direction = self._key(w, 0)
            self._keys[w] = seed, direction

    def tracks(self, which: Iterable[int]) -> list[T]:
        """The present tracks of some worlds; waits until they are built."""
        return [self._pool.get(self._keys[w]) for w in which]

    def starts(self, which: Iterable[int]) -> list[Start]:
        """How the cars of the present episodes start in some worlds."""
        return [self._start(w) for w in which]

    def prefetch(self, which: Iterable[int]) -> None:
        """Have the tracks of some worlds' next episodes built in the background."""
        for w in which:
            self._pool.prefetch(self._key(w, self._episodes[w] + 1))

    def snapshot(self) -> np.ndarray:
        """All that is drawn from, as the bytes of a JSON text, because seeds have any size.

        Its rows are root, lane, episode, track seed and direction of each world.
        """
        rows = zip(self._roots, self._lanes, self._episodes, self._keys, strict=True)
        text = json.dumps([[root, lane, episode, *key] for root, lane, episode, key in rows])
        return np.frombuffer(text.encode(), np.uint8)

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from the `schedule` of an environment's snapshot.

        Raises:
            UserError: a damaged snapshot, or tracks that the split forbids; nothing has changed
                then.
        """
        try:
            rows = json.loads(bytes(np.asarray(state["schedule"], np.uint8)))
            roots, lanes, episodes, seeds, directions = zip(*rows, strict=True)
            numbers = [whole_seed(number) for number in (*roots, *lanes, *episodes)]
            if len(rows) != self._worlds or not set(directions) <= set(DIRECTIONS):
                raise ValueError(f"{len(rows)} worlds, directions {set(directions)}")
        except KeyError as error:
            raise UserError(f"{self._where}: the snapshot lacks {error}") from None
        except (TypeError, ValueError, UserError) as error:
            raise UserError(f"{self._where}: the snapshot's schedule is damaged: {error}") from None
        self._keys = list(zip(self._checked(seeds), directions, strict=True))
        n = self._worlds
        self._roots, self._lanes, self._episodes = numbers[:n], numbers[n : 2 * n], numbers[2 * n :]

    def close(self) -> None:
        """Stop the background builder."""
        self._pool.close()

    def _checked(self, seeds: Iterable[int]) -> list[int]:
        try:
            return [check_track_seed(seed, self._split) for seed in seeds]
        except UserError as error:
            raise UserError(f"{self._where}: {error}") from None

    def _whole(self, seeds: Iterable[int]) -> list[int]:
        try:
            return [whole_seed(seed) for seed in seeds]
        except UserError as error:
            raise UserError(f"{self._where}: {error}") from None

    def _key(self, world: int, episode: int) -> Key:
        """Track seed and direction of a world's episode, unless a seed names the track."""
        root, lane = self._roots[world], self._lanes[world]
        if self._explicit is not None:
            seed = self._explicit[(world + episode * self._worlds) % len(self._explicit)]
        else:
            first, last = SPLITS[self._split or "train"]
            if self._config.track_pool:
                block = episode // self._config.track_reuse
                place = derive(root, "place", lane, episode) % self._config.track_pool
                number = derive(root, "pool", block, place)
            else:
                number = derive(root, "track", lane, episode)
            seed = first + number % (last - first + 1)
        direction = self._config.direction
        if direction == "both":
            direction = "cw" if derive(root, "direction", lane, episode) % 2 else "ccw"
        return seed, direction

    def _start(self, world: int) -> Start:
        share = self._config.random_start
        if share == 0:
            return GRID
        place = self._roots[world], "start", self._lanes[world], self._episodes[world]
        if np.random.default_rng(derive(*place)).random() >= share:
            return GRID
        root, _, lane, episode = place
        return random_start(derive(root, "start pose", lane, episode))
