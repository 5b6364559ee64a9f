"""The locked evaluator: it computes every published driving number of this project.

The rules: a standing start, one lap, at most 1,000 engine ticks, and no ending for leaving the
road. The evaluator measures native quantities only, so no reward configuration can flatter a
policy. Each result has `EVALUATOR_HASH`, the hash of this file and of the engine. Results with
different hashes were measured by different code.

Every car has a fixed slot in its batch from the first decision to the last, even after its episode
has ended, so policies with memory can be evaluated. The row of a track does not depend on the other
tracks of the list. A sampling policy draws from (track seed, decision).

Worlds: "race" ends after a lap by arc length, and continues beyond the playfield. "carracing" is
the same simulator with CarRacing-v3's endings. "gymnasium_carracing" is the real CarRacing-v3
(extra `parity`) with the same observations; its score text is blackened.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from common.errors import UserError
from common.rl.policy import Policy, TelemetrySpec, frame_settings, select_observation
from common.seeding import refuse_sealed, whole_seed
from common.statistics import bounded_interval, proportion_interval
from envs.racing.config import EnvConfig
from envs.racing.reference.pool import ReferencePool
from envs.racing.score.endings import EndingConfig
from envs.racing.score.metrics import episode_statistics
from envs.racing.vector_env import RacingVectorEnv

MAX_TICKS = 1000
WORLDS = ("race", "carracing", "gymnasium_carracing")
BATCH = 128
RANGES: dict[str, tuple[float | None, float | None]] = {
    "native_return": (None, None),
    "progress": (-1.0, 1.0),
    "lap_time": (0.0, None),
    "off_track_rate": (0.0, 1.0),
    "mean_speed": (0.0, None),
    "steering_variance": (0.0, None),
    "ticks": (0.0, None),
    "decisions": (0.0, None),
    "finished": (0.0, 1.0),
    "left_track": (0.0, 1.0),
}
"""Lowest and highest possible value of each measure; None for no bound. Intervals stay inside."""
SHARES = ("finished", "left_track")
MEANS = tuple(name for name in RANGES if name not in SHARES)

MEASURES = ("sim", "pixels", "score", "reference")
"""Folders beside this file. The hash covers all their modules."""

FACES = ("actions.py", "config.py", "engine.py", "evaluate.py", "options.py", "vector_env.py")
"""Files beside this one that join those folders, and this file; the hash covers them too."""

SHARED = ("common/telemetry.py", "common/rl/policy.py")
"""Files that declare actions, observations and the contract of policies; the hash covers them."""


def _hash() -> str:
    package = Path(__file__).parent
    root = package.parents[1]
    sources = [package / face for face in FACES] + [root / shared for shared in SHARED]
    for folder in MEASURES:
        sources += sorted((package / folder).rglob("*.py"))
    digest = hashlib.sha256()
    for source in sources:
        name = source.relative_to(root).as_posix()
        digest.update(name.encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()


EVALUATOR_HASH = _hash()
"""SHA-256 of this file and the engine's sources."""


Progress = Callable[[int, int], None]
"""Called as (done, total) during a long task."""


@dataclass
class Evaluation:
    """The results of a policy on a list of tracks.

    Attributes:
        rows: one dict per track: seed, native_return, progress (laps, cut at -1 and 1), finished,
            lap_time (s, None if not finished), off_track_rate (share of ticks with all wheels off),
            left_track (whether all wheels ever were), mean_speed (units/s), steering_variance,
            ticks, decisions.
        settings: env, direction, max_ticks, deterministic and the policy's spec.
        actions: (decisions of all tracks, 3) float32, every action before the end of its episode.
        summary: metric -> {"mean", "low", "high", "n"} with 95% intervals over tracks (see
            `common.statistics.bounded_interval`;
            Wilson for shares; lap_time over finished tracks only, absent if there are none), and
            native_return_min, native_return_p10 as numbers.
    """

    rows: list[dict[str, Any]]
    settings: dict[str, Any]
    actions: np.ndarray = field(
        default_factory=lambda: np.zeros((0, 3), np.float32), repr=False, compare=False
    )
    summary: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.summary = {}
        for name in MEANS:
            values = [row[name] for row in self.rows if row[name] is not None]
            if values:
                self.summary[name] = bounded_interval(values, *RANGES[name]).to_dict()
        for name in SHARES:
            count = sum(bool(row[name]) for row in self.rows)
            self.summary[name] = proportion_interval(count, len(self.rows)).to_dict()
        returns = [row["native_return"] for row in self.rows]
        self.summary["native_return_min"] = float(np.min(returns))
        self.summary["native_return_p10"] = float(np.percentile(returns, 10))

    def to_dict(self) -> dict[str, Any]:
        """Everything except the actions, for `eval.json`."""
        return {
            "evaluator": EVALUATOR_HASH,
            "settings": self.settings,
            "summary": self.summary,
            "rows": self.rows,
        }


def evaluate(
    policy: Policy,
    track_seeds: Sequence[int],
    *,
    env: str = "race",
    direction: str = "ccw",
    max_ticks: int = MAX_TICKS,
    deterministic: bool = True,
    threads: int = 1,
    sealed: bool = False,
    progress: Progress | None = None,
) -> Evaluation:
    """Drive every track once.

    Args:
        policy: the policy to evaluate.
        track_seeds: CarRacing track seeds.
        env: one of WORLDS.
        direction: "ccw", or "cw" in race.
        max_ticks: engine ticks per track; the published figures use the default.
        deterministic: the policy's most likely actions rather than a sample.
        threads: engine threads, or worker processes that step the real CarRacing-v3; the result
            does not depend on it.
        sealed: allow the sealed tracks, which are used once, for a final report.
        progress: called after every decision with the number of engine ticks done and the largest
            possible number, summed over tracks.

    Raises:
        UserError: an unknown world or direction, no seeds, sealed seeds, a missing extra, or a
            policy that reads telemetry in the real CarRacing-v3, which has none.
    """
    seeds = [whole_seed(seed) for seed in track_seeds]
    if not sealed:
        refuse_sealed(seeds)
    if env not in WORLDS:
        raise UserError(f"env is one of {', '.join(WORLDS)}, not {env!r}")
    if direction not in ("ccw", "cw") or (direction == "cw" and env != "race"):
        raise UserError(f"direction is ccw (or cw where env=race), not {direction!r} in {env}")
    if not 1 <= threads <= 256:
        raise UserError(f"threads is 1 to 256, not {threads}")
    if not seeds:
        raise UserError("an evaluation needs at least one track seed")
    if env == "gymnasium_carracing" and isinstance(policy.spec, TelemetrySpec):
        raise UserError(
            f"this policy reads telemetry, and {env} has only pixels; evaluate it in env=race or "
            "env=carracing"
        )
    rows: list[dict[str, Any]] = []
    actions: list[np.ndarray] = []
    for start in range(0, len(seeds), BATCH):
        batch = seeds[start : start + BATCH]
        if env == "gymnasium_carracing":
            world: _World = _ReferenceWorld(policy, batch, max_ticks, threads)
        else:
            world = _EngineWorld(policy, batch, env, direction, max_ticks, threads)
        with closing(world):
            _drive(policy, world, batch, deterministic, actions, start, len(seeds), progress)
            rows += world.rows()
    settings = {
        "env": env,
        "direction": direction,
        "max_ticks": max_ticks,
        "deterministic": deterministic,
        "spec": asdict(policy.spec),
    }
    return Evaluation(rows, settings, np.concatenate(actions))


def _drive(
    policy: Policy,
    world: _World,
    seeds: list[int],
    deterministic: bool,
    actions: list[np.ndarray],
    before: int,
    tracks: int,
    progress: Progress | None,
) -> None:
    """Drive all cars of a batch to the end of their episodes and append to `actions`.

    `before` tracks of all `tracks` were driven in earlier batches.
    """
    carry = policy.initial(len(seeds), seeds)
    is_first = np.ones(len(seeds), bool)
    while world.active.any():
        # The policy also acts for ended cars, because every car keeps its slot. It changes nothing.
        action, carry = policy.act(carry, world.observation, is_first, deterministic)
        action = np.asarray(action, np.float32)
        actions.append(action[world.active])
        world.step(action)
        is_first = np.zeros(len(seeds), bool)
        if progress is not None:
            ticks = np.where(world.active, world.ticks, world.max_ticks)
            progress(before * world.max_ticks + int(ticks.sum()), tracks * world.max_ticks)


class _World(Protocol):
    """Cars, each alone on its track. A car whose episode has ended does not change any more.

    Attributes:
        max_ticks: limit of an episode.
        observation: (n, *spec.shape).
        active: (n,) bool, cars whose episode has not ended.
        ticks: number of ticks so far of those cars.
    """

    max_ticks: int
    observation: np.ndarray
    active: np.ndarray
    ticks: int

    def step(self, action: np.ndarray) -> None:
        """Hold actions (n, 3) for one decision."""

    def rows(self) -> list[dict[str, Any]]:
        """The measurements, one row per track, after all episodes have ended."""

    def close(self) -> None:
        """Stop threads and processes."""


class _EngineWorld:
    """Cars in our engine."""

    def __init__(
        self,
        policy: Policy,
        seeds: list[int],
        env: str,
        direction: str,
        max_ticks: int,
        threads: int,
    ) -> None:
        self._spec, self._seeds = policy.spec, seeds
        config = EnvConfig(
            preset=env, direction=direction, max_ticks=max_ticks, threads=threads,
            **frame_settings(self._spec),
        )  # fmt: skip
        self._env = RacingVectorEnv(
            len(seeds),
            config,
            split=None,
            track_seeds=seeds,
            autoreset=False,
            endings=EndingConfig(playfield=env == "carracing"),
        )
        self._rows: list[dict[str, Any] | None] = [None] * len(seeds)
        self.max_ticks, self.ticks = max_ticks, 0
        frames, info = self._env.reset()
        self._take(frames, info)

    def _take(self, frames: np.ndarray, info: dict[str, Any]) -> None:
        self.observation = select_observation(self._spec, frames, info)
        self.active = info["active"]

    def step(self, action: np.ndarray) -> None:
        frames, _, _, _, info = self._env.step(action)
        self.ticks += self._spec.action_repeat
        self._take(frames, info)
        for w in np.flatnonzero(info.get("_episode_statistics", ())):
            episode = {name: values[w] for name, values in info["episode_statistics"].items()}
            self._rows[w] = _row(self._seeds[w], episode, self._spec.action_repeat)

    def rows(self) -> list[dict[str, Any]]:
        return self._rows

    def close(self) -> None:
        self._env.close()


class _ReferenceWorld:
    """Cars in the real CarRacing-v3, each in a separate environment."""

    def __init__(self, policy: Policy, seeds: list[int], max_ticks: int, workers: int) -> None:
        self._seeds, self._repeat = seeds, policy.spec.action_repeat
        self.max_ticks, self.ticks = max_ticks, 0
        self._pool = ReferencePool(len(seeds), policy.spec, max_ticks, workers)
        self._last, observation = self._pool.reset(np.arange(len(seeds)), seeds)
        self._last, self.observation = self._last.copy(), observation.copy()
        self.active = np.ones(len(seeds), bool)

    def step(self, action: np.ndarray) -> None:
        running = np.flatnonzero(self.active)
        outcomes, observation = self._pool.step(running, action[running])
        self.ticks += self._repeat
        self._last[running], self.observation[running] = outcomes, observation
        cars = outcomes["car"]
        self.active = self.active.copy()
        self.active[running] = (cars["terminated"] | cars["truncated"]) == 0

    def rows(self) -> list[dict[str, Any]]:
        statistics = episode_statistics(self._last["car"], self._last["length"])
        return [
            _row(seed, {name: values[w] for name, values in statistics.items()}, self._repeat)
            for w, seed in enumerate(self._seeds)
        ]

    def close(self) -> None:
        self._pool.close()


def _row(seed: int, episode: dict[str, Any], repeat: int) -> dict[str, Any]:
    ticks, finished = int(episode["length"]), bool(episode["finished"])
    return {
        "seed": seed,
        "native_return": float(episode["native_return"]),
        "progress": float(min(max(episode["progress"], -1.0), 1.0)),
        "finished": finished,
        "lap_time": float(episode["lap_time"]) if finished else None,
        "off_track_rate": float(episode["off_track_rate"]),
        "left_track": bool(episode["off_track_rate"] > 0),
        "mean_speed": float(episode["mean_speed"]),
        "steering_variance": float(episode["steering_variance"]),
        "ticks": ticks,
        "decisions": math.ceil(ticks / repeat),
    }
