"""A trained policy outside training: load it, drive with it, report how it was judged."""

import os
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from common.cli import table
from common.errors import UserError
from common.rl.controls import ACTION_SIZE
from common.rl.noise import Draws, initial_draws, standard_normal
from common.rl.policy import ObservationSpec
from common.runs import checkpoint_in
from ppo import checkpoint
from ppo.policy import ActorCritic, to_pixels

METRICS = ("native_return", "progress", "finished", "lap_time", "off_track_rate", "left_track",
           "mean_speed")  # fmt: skip
"""What the printed table shows, by the evaluator's names."""


CHUNK = 8
"""Cars that the network decides for at a time; a smaller rest is filled up with black frames.

Matrix products round differently at different sizes, so at one fixed size a car's actions are the
same to the last bit whoever drives beside it. At 8 rows they also do not depend on the row or
on the number of threads, and a single car costs little more than it would alone."""


class Driver:
    """A trained policy behind the contract of `common.rl.policy`.

    `spec` says how to feed it: frame size, grey, stack, and for how many engine ticks each action
    is held. `about` is the checkpoint's provenance. The network remembers nothing; the carry says
    where the cars' random sequences are, for those who sample.
    """

    def __init__(
        self,
        policy: ActorCritic,
        spec: ObservationSpec,
        about: Mapping[str, Any] | None = None,
    ) -> None:
        self.policy, self.spec, self.about = policy, spec, dict(about or {})

    def initial(self, n: int, seeds: Sequence[int] | None = None) -> Draws:
        """The carry of n cars; see `common.rl.policy.Policy`."""
        return initial_draws(n, seeds)

    @torch.inference_mode()
    def act(
        self,
        carry: Draws,
        observation: np.ndarray,
        is_first: np.ndarray,
        deterministic: bool = True,
    ) -> tuple[np.ndarray, Draws]:
        """Actions (n, 3) float32; see `common.rl.policy.Policy`.

        Raises:
            UserError: anything but uint8 frames (n, *spec.shape) for the n cars of the carry.
        """
        frames = np.asarray(observation)
        n = len(carry.seed)
        if frames.dtype != np.uint8 or frames.shape != (n, *self.spec.shape):
            raise UserError(
                f"this policy takes uint8 frames of shape {(n, *self.spec.shape)}, one for each of "
                f"the {n} cars of its carry; got {frames.dtype} {frames.shape}"
            )
        controls = len(self.policy.controls)
        noise = np.zeros((n, controls)) if deterministic else standard_normal(carry, controls)
        actions = np.empty((n, ACTION_SIZE), np.float32)
        for start in range(0, n, CHUNK):
            rows = slice(start, start + CHUNK)
            actions[rows] = self._decide(frames[rows], noise[rows])
        return actions, carry.advance()

    def _decide(self, frames: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """Actions of at most CHUNK cars."""
        n = len(frames)
        if n < CHUNK:
            missing = CHUNK - n
            frames = np.concatenate([frames, np.zeros((missing, *frames.shape[1:]), np.uint8)])
            noise = np.concatenate([noise, np.zeros((missing, noise.shape[1]))])
        device = self.policy.low.device
        pixels = to_pixels(frames, self.spec).to(device)
        decision = self.policy.decide(pixels, torch.from_numpy(noise).float().to(device))
        return decision.action[:n].float().cpu().numpy()


def load_policy(
    path: str | os.PathLike,
    device: str | torch.device = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Driver:
    """The policy in the checkpoint at `path`; a run directory stands for its best one.

    float64 is slower. Its decisions differ between processors too, but by less than what
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
    """The checkpoint that `path` means: itself or, of a run directory, the best one.

    Where nothing was validated it is the last one. Raises `UserError` for a directory without.
    """
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
