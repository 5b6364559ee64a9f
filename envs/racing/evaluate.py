"""The locked evaluator: every published driving number of this project is computed here.

Standing start, one lap, at most 1,000 engine ticks, never ended for being off the track; native
quantities only, so no reward configuration can flatter a policy. Each result carries
`EVALUATOR_HASH`, the hash of this file and of the engine that it measures with: numbers with
different hashes were not measured with the same ruler.

Worlds: "race" ends at a lap by arc length, and goes on beyond the playfield; "carracing" is the
same game with CarRacing-v3's own endings; "gymnasium_carracing" is the real CarRacing-v3 (extra
`parity`), driven through the same observations with its score text blackened.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from common.errors import UserError
from common.seeding import refuse_sealed, whole_seed
from common.statistics import bounded_interval, proportion_interval
from envs.racing.config import EnvConfig, ObservationSpec
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
"""Least and most of each measure; None where it has no end. Intervals stay in between."""
SHARES = ("finished", "left_track")
MEANS = tuple(name for name in RANGES if name not in SHARES)

MEASURES = ("sim", "pixels", "score", "reference")
"""Folders beside this file whose every module the ruler measures with."""

FACES = ("actions.py", "config.py", "engine.py", "evaluate.py", "options.py", "vector_env.py")
"""What joins them, and this file."""


def _hash() -> str:
    package = Path(__file__).parent
    sources = [package / face for face in FACES]
    for folder in MEASURES:
        sources += sorted((package / folder).rglob("*.py"))
    digest = hashlib.sha256()
    for source in sources:
        name = source.relative_to(package).as_posix()
        digest.update(name.encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()


EVALUATOR_HASH = _hash()
"""SHA-256 of this file and the engine's sources."""


class Policy(Protocol):
    """What can be evaluated."""

    spec: ObservationSpec

    def act(self, observation: np.ndarray, deterministic: bool = True) -> np.ndarray:
        """Actions (n, 3) for a batch of uint8 observations (n, *spec.shape)."""


@dataclass
class Evaluation:
    """What a policy did on a list of tracks.

    Attributes:
        rows: one dict per track: seed, native_return, progress (laps, cut at -1 and 1), finished,
            lap_time (s, None if not finished), off_track_rate (share of ticks with all wheels off),
            left_track (ever so), mean_speed (units/s), steering_variance, ticks, decisions.
        settings: env, direction, max_ticks, deterministic and the policy's spec.
        summary: metric -> {"mean", "low", "high", "n"} with 95% intervals over tracks (see
            `common.statistics.bounded_interval`;
            Wilson for shares; lap_time over finished tracks only, absent if there are none), and
            native_return_min, native_return_p10 as numbers.
    """

    rows: list[dict[str, Any]]
    settings: dict[str, Any]
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
        """Everything, for `eval.json`."""
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
) -> Evaluation:
    """Drive every track once.

    Args:
        policy: what to evaluate.
        track_seeds: CarRacing track seeds.
        env: one of WORLDS.
        direction: "ccw", or "cw" in race.
        max_ticks: engine ticks per track; the published figures use the default.
        deterministic: the policy's squashed mean rather than a sample.
        threads: engine threads, or worker processes that step the real CarRacing-v3; the result
            does not depend on it.
        sealed: allow the sealed tracks, which a final report opens once.

    Raises:
        UserError: an unknown world or direction, no seeds, sealed ones, or a missing extra.
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
    rows: list[dict[str, Any]] = []
    for start in range(0, len(seeds), BATCH):
        some = seeds[start : start + BATCH]
        if env == "gymnasium_carracing":
            rows += _drive_reference(policy, some, max_ticks, deterministic, threads)
        else:
            rows += _drive(policy, some, env, direction, max_ticks, deterministic, threads)
    settings = {
        "env": env,
        "direction": direction,
        "max_ticks": max_ticks,
        "deterministic": deterministic,
        "spec": vars(policy.spec).copy(),
    }
    return Evaluation(rows, settings)


def _drive(
    policy: Policy,
    seeds: list[int],
    env: str,
    direction: str,
    max_ticks: int,
    deterministic: bool,
    threads: int,
) -> list[dict[str, Any]]:
    spec = policy.spec
    config = EnvConfig(
        preset=env,
        direction=direction,
        max_ticks=max_ticks,
        size=spec.size,
        grey=spec.grey,
        frame_stack=spec.frame_stack,
        action_repeat=spec.action_repeat,
        threads=threads,
    )
    world = RacingVectorEnv(
        len(seeds),
        config,
        split=None,
        track_seeds=seeds,
        autoreset=False,
        endings=EndingConfig(playfield=env == "carracing"),
    )
    observation, info = world.reset()
    action = np.zeros((len(seeds), 3), np.float32)
    rows: list[dict[str, Any] | None] = [None] * len(seeds)
    try:
        while True:
            # Ended worlds stay as they are; only the others need a decision.
            active = np.flatnonzero(info["active"])
            if not len(active):
                break
            some = observation if len(active) == len(seeds) else observation[active]
            action[active] = policy.act(some, deterministic=deterministic)
            observation, _, _, _, info = world.step(action)
            for w in np.flatnonzero(info.get("_episode_statistics", ())):
                episode = {name: values[w] for name, values in info["episode_statistics"].items()}
                rows[w] = _row(seeds[w], episode, spec.action_repeat)
    finally:
        world.close()
    return rows


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


def _drive_reference(
    policy: Policy, seeds: list[int], max_ticks: int, deterministic: bool, workers: int
) -> list[dict[str, Any]]:
    repeat = policy.spec.action_repeat
    with closing(ReferencePool(len(seeds), policy.spec, max_ticks, workers)) as pool:
        running = np.arange(len(seeds))
        outcomes, observation = pool.reset(running, seeds)
        last = outcomes.copy()
        while len(running):
            actions = policy.act(observation, deterministic=deterministic)
            outcomes, observation = pool.step(running, actions)
            last[running] = outcomes
            going = (outcomes["car"]["terminated"] | outcomes["car"]["truncated"]) == 0
            running, observation = running[going], observation[going]
    statistics = episode_statistics(last["car"], last["length"])
    return [
        _row(seed, {name: values[w] for name, values in statistics.items()}, repeat)
        for w, seed in enumerate(seeds)
    ]
