"""A small world model and a world of one number, in which every prediction can be told by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from replay import Attributes, DataSet, Episode, ShardWriter
from rssm.config import HeadConfig, ModelConfig, RSSMConfig
from rssm.data import Batch
from rssm.objective import LossConfig
from rssm.world_model import WorldModel

NETWORK = RSSMConfig(
    channels=(4, 8), deter=16, stoch=4, hidden=16, head_units=16, min_std=0.05, see_change=False
)  # fmt: skip
DISCRETE = RSSMConfig(
    channels=(4, 8), deter=16, stoch=4, classes=3, hidden=16, head_units=16, see_change=False
)
PLAIN_LOSS = LossConfig(
    reward=1.0, telemetry=1.0, off_track=1.0, heads={}, dynamics=1.0, representation=0.1,
    image_every=1, overshoot=0.0, overshoot_rows=15,
)  # fmt: skip
"""Every head and both KLs as light as the picture, every row decoded, no futures."""
TELEMETRY = ("speed", "progress_delta", "steer", "yaw_rate", "corner_angle", "lateral_offset")

ATTRIBUTES = Attributes(
    environment={},
    reward={},
    camera={},
    action_repeat=1,
    policy="random",
    code="0" * 64,
    telemetry=("speed", "steer", "off_track"),
)


def config(
    network: RSSMConfig = NETWORK, telemetry=("speed", "steer"), off=True, **options
) -> ModelConfig:
    regression = options.pop("regression", "symlog")
    heads = HeadConfig(telemetry, off_track=off, regression=regression)
    return ModelConfig(network, heads, **options)


def model(network: RSSMConfig = NETWORK, telemetry=("speed", "steer"), off=True) -> WorldModel:
    torch.manual_seed(0)
    made = WorldModel(config(network, telemetry, off))
    with torch.no_grad():
        for parameter in made.parameters():  # zero-initialised outputs would hide every gradient
            parameter.add_(0.05 * torch.randn_like(parameter))
    return made


def batch(rows: int = 2, length: int = 6, seed: int = 0, first=()) -> Batch:
    """Random rows for a loss; `first` lists (window, row) that begin an episode."""
    generator = torch.Generator().manual_seed(seed)
    shape = (rows, length)
    numbers = {
        name: torch.rand(shape, generator=generator)
        for name in ("reward", "continue", "speed", "steer", "off")
    }
    numbers["off"] = (numbers["off"] > 0.5).float()
    numbers["continue"] = (numbers["continue"] > 0.1).float()
    is_first = torch.zeros(shape, dtype=torch.bool)
    for place in first:
        is_first[place] = True
    frames = torch.randint(0, 256, (*shape, 96, 96, 3), dtype=torch.uint8, generator=generator)
    actions = torch.rand(*shape, 3, generator=generator)
    return Batch(actions, is_first, numbers, frames)


def counting_episode(number: int, length: int, rng: np.random.Generator) -> Episode:
    """A car on a line, seen as a bar whose height is its place; the action moves it.

    place[t] = clip(place[t-1] + action[t, 0], 0, 1), speed[t] = place[t] - place[t-1], the reward
    at o_t is the place, and steer is the action that led to o_t.
    """
    action = np.zeros((length, 3), np.float32)
    action[1:, 0] = rng.uniform(-0.4, 0.4, length - 1)
    place = np.zeros(length, np.float32)
    place[0] = rng.uniform(0.2, 0.8)
    for t in range(1, length):
        place[t] = np.clip(place[t - 1] + action[t, 0], 0, 1)
    height = np.arange(96)[:, None] < 96 * place[:, None, None]
    observation = np.broadcast_to(
        np.where(height, 220, 20)[..., None].astype(np.uint8), (length, 96, 96, 3)
    )
    reward = place.copy()
    reward[0] = 0
    ends = np.arange(length) == length - 1
    return Episode(
        observation=np.ascontiguousarray(observation),
        action=action,
        reward=reward,
        terminated=np.zeros(length, np.bool_),
        truncated=ends & (length > 1),
        telemetry={
            "speed": place,
            "steer": action[:, 0].copy(),
            "off_track": (place > 0.5).astype(np.float32),
        },
        track_seed=10_000 + number,
        direction=0,
        scenario="counter",
    )


def counting_data(
    root: Path, episodes: int = 12, length: int = 40, splits=("train", "val")
) -> None:
    """Data set D below `root`, of counting episodes."""
    for split in splits:
        rng = np.random.default_rng(len(split))
        with ShardWriter(root, "D", split, ATTRIBUTES) as writer:
            for number in range(episodes):
                writer.add(counting_episode(number, length, rng))


def opened(root: Path, split: str = "train") -> DataSet:
    return DataSet(root, "D", split)
