"""A trained policy outside training: loading it, driving with it, judging it, reporting that."""

import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from common.cli import table
from common.errors import UserError
from common.runs import checkpoint_in
from envs.racing.config import ObservationSpec
from ppo import checkpoint
from ppo.policy import ActorCritic, to_pixels

METRICS = ("native_return", "progress", "finished", "lap_time", "off_track_rate", "left_track",
           "mean_speed")  # fmt: skip
"""What the printed table shows, by the evaluator's names."""


class Driver:
    """A policy as something to drive with: uint8 frames in, actions out.

    `spec` tells how to feed it: frame size, grey, stack, and for how many engine ticks each action
    is held. `about` is the checkpoint's provenance.
    """

    def __init__(
        self,
        policy: ActorCritic,
        spec: ObservationSpec,
        about: Mapping[str, Any] | None = None,
        seed: int = 0,
    ) -> None:
        self.policy, self.spec, self.about = policy, spec, dict(about or {})
        self._device = policy.low.device
        self._generator = torch.Generator().manual_seed(seed)

    @torch.inference_mode()
    def act(self, observation: np.ndarray, deterministic: bool = True) -> np.ndarray:
        """float32 actions (3,) for one observation, (n, 3) for a batch: steer, gas, brake.

        `observation` is uint8 of shape `spec.shape` or (n, *spec.shape). Raises `UserError` for
        anything else.
        """
        frames = np.asarray(observation)
        single = frames.shape == self.spec.shape
        batch = frames[None] if single else frames
        if frames.dtype != np.uint8 or batch.shape[1:] != self.spec.shape:
            raise UserError(
                f"this policy takes uint8 frames of shape {self.spec.shape}, one or a batch; got "
                f"{frames.dtype} {frames.shape}"
            )
        noise = torch.zeros(len(batch), len(self.policy.controls))
        if not deterministic:
            noise.normal_(generator=self._generator)
        pixels = to_pixels(batch, self.spec).to(self._device)
        decision = self.policy.decide(pixels, noise.to(self._device))
        actions = decision.action.float().cpu().numpy()
        return actions[0] if single else actions


def load_policy(
    path: str | os.PathLike,
    device: str | torch.device = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Driver:
    """The policy in the checkpoint at `path`; a run directory stands for its best one.

    In float64 it is slower, and its decisions differ between processors by less than what
    `envs.racing.drivers.ActionNoise` rounds off.

    Raises `UserError` for a missing, damaged or foreign file.
    """
    path = resolve_checkpoint(path)
    content = checkpoint.load(path)
    policy, spec = checkpoint.build_policy(content, path)
    return Driver(policy.to(device, dtype).eval(), spec, content["about"])


def require_extra(world: str) -> None:
    """Raise `UserError` if the evaluator's `world` needs an extra that is not installed."""
    if world == "gymnasium_carracing" and find_spec("Box2D") is None:
        raise UserError(
            f"{world} is Gymnasium's own CarRacing-v3; install the extra: "
            "pip install -e '.[parity]'"
        )


def resolve_checkpoint(path: str | os.PathLike) -> Path:
    """`path` itself, or the checkpoint that the run directory it names would be judged by: the
    best one, or the last where nothing was validated. `UserError` for a directory without."""
    return checkpoint_in(path, ("best.pt", "last.pt"))


def report(summary: Mapping[str, Any], title: str) -> None:
    """Print an evaluation's summary as a table: mean and interval, and the return's low end."""
    rows = []
    for name in METRICS:
        estimate = summary.get(name)
        if estimate is None:
            continue
        low_end = [summary.get(f"{name}_min"), summary.get(f"{name}_p10")]
        numbers = [estimate["mean"], estimate["low"], estimate["high"], *low_end]
        rows.append([name, *("" if x is None else float(x) for x in numbers), estimate["n"]])
    table(["metric", "mean", "low 95%", "high 95%", "min", "p10", "tracks"], rows, title)


def headline(summary: Mapping[str, Any]) -> dict[str, float | None]:
    """The numbers of an evaluation for a last line: means, and the return's low end."""
    means = {name: summary[name]["mean"] for name in METRICS if name in summary}
    low_end = {
        name: summary[name]
        for name in ("native_return_min", "native_return_p10")
        if name in summary
    }
    return means | low_end
