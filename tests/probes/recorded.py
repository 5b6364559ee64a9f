"""Real driving, recorded for the tests of the probes: scripted drivers on a few tracks."""

from __future__ import annotations

from pathlib import Path

from envs.racing import EndingConfig, EnvConfig, RacingVectorEnv
from envs.racing.drivers import make_scenario
from experiments.data.collection import describe_camera
from replay import Attributes, ShardWriter
from replay.collect import collect


def attributes() -> Attributes:
    return Attributes(
        environment={"preset": "race"},
        reward={},
        camera=describe_camera(96),
        action_repeat=1,
        policy="script",
        code="0" * 64,
    )


def record(root: Path, dataset: str, split: str, frames: int = 1600) -> None:
    """Drive sustained turns on eight tracks into `<root>/<dataset>/<split>`."""
    tracks = {"train": 10_000, "val": 1_000, "probe": 100}[split]
    env = RacingVectorEnv(
        8, EnvConfig(direction="both"), seed=0, split=None,
        track_seeds=list(range(tracks, tracks + 8)), endings=EndingConfig(finish=False),
    )  # fmt: skip
    scripted = make_scenario("sustained_turn", batch_seed=0)
    with ShardWriter(root, dataset, split, attributes()) as writer:
        collect(
            env,
            scripted,
            writer,
            frames=frames,
            scenario="sustained_turn",
            direction=0,
            length=200,
            warmup=100,
            seed=0,
        )
    env.close()
