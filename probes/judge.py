"""Imagines the horizon of every clip, and measures the camera's motion in frames.

The model first sees the context (frames and actions). Then it predicts open loop: it gets only the
recorded actions and uses its prior alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from common.seeding import derive
from probes import metrics
from probes.camera import PictureCamera
from probes.clips import Clip, starts
from probes.registration import register
from replay import DataSet
from rssm import State, WorldModel
from rssm.data import Reader
from rssm.motion import Motion, compose, motion_between

BATCH = 8
PAIR_EVERY = 5
"""Rows between the frames that registration compares."""
TRUSTED = 0.06
"""A registration with a larger residual (grey values in [0, 1]) is not trusted."""


@dataclass(frozen=True)
class Futures:
    """Recorded and imagined futures of n clips, H rows each.

    Attributes:
        real, imagined, posterior: (n, H, size, size, 3) uint8. `posterior` holds the decoder's
            pictures from states that saw the frames: the best that the decoder can do.
        other: (n, H, size, size, 3) uint8, imagined with another clip's actions and the same noise.
        context: (n, C, size, size, 3) uint8, the frames of the context.
        predicted: (n, H) by head, the mean over `samples` imagined futures from the same state.
            The pictures show the first of these futures.
        recorded: (n, H) by head.
        pose: (n, H + 1, 3), x, y and heading, starting at the last row of the context.
        actions: (n, H, 3).
        context_telemetry: (n, C, heads), one column per telemetry head.
        last_step: the motion between the last two frames of each context.
    """

    real: NDArray[np.uint8]
    imagined: NDArray[np.uint8]
    posterior: NDArray[np.uint8]
    other: NDArray[np.uint8]
    context: NDArray[np.uint8]
    predicted: dict[str, NDArray[np.float32]]
    recorded: dict[str, NDArray[np.float32]]
    pose: NDArray[np.float64]
    actions: NDArray[np.float32]
    context_telemetry: NDArray[np.float32]
    last_step: list[Motion]


@torch.no_grad()
def follow(
    model: WorldModel,
    data: DataSet,
    clips: Sequence[Clip],
    context: int,
    horizon: int,
    *,
    samples: int = 1,
    seed: int = 0,
) -> Futures:
    """Imagine the horizon of every clip; `samples` futures per clip are drawn for telemetry."""
    reader = Reader(data, *model.heads.targets)
    telemetry = model.heads.telemetry
    pose_names = ("telemetry/x", "telemetry/y", "telemetry/heading")
    length = context + horizon
    device = next(model.parameters()).device
    first = starts(list(clips))
    partner = np.roll(np.arange(len(first)), 1 + len(first) // 3)
    parts: dict[str, list[NDArray]] = {}

    def add(name: str, values: NDArray) -> None:
        parts.setdefault(name, []).append(values)

    for begin in range(0, len(first), BATCH):
        chosen = np.arange(begin, min(begin + BATCH, len(first)))
        batch = reader.batch(first[chosen], length).to(device)
        actions = batch.action[:, context:]
        partner_actions = data.windows(first[partner[chosen]], length, ["action"])["action"]
        noise = _noise(model, first[chosen], length, seed, "clip").to(device)
        observed = model.observe(
            batch.observation, batch.action, batch.is_first, noise=noise, before=batch.before
        )
        last = State(*(part[:, context - 1] for part in observed.state))
        last_frame = batch.observation[:, context - 1]
        future = model.imagine(
            last, actions, noise=noise[:, context:], pixels=True, first_frame=last_frame
        )
        forecasts = [future.predictions.by_head()]
        for sample in range(1, samples):
            fresh = _noise(model, first[chosen], horizon, seed, "sample", sample).to(device)
            sampled = model.imagine(last, actions, noise=fresh)
            forecasts.append(sampled.predictions.by_head())
        other_actions = torch.from_numpy(partner_actions[:, context:]).to(device)
        other = model.imagine(
            last, other_actions, noise=noise[:, context:], pixels=True, first_frame=last_frame
        )
        after = State(*(part[:, context:] for part in observed.state))
        frames = batch.observation.cpu().numpy()
        add("real", frames[:, context:])
        add("context", frames[:, :context])
        add("imagined", _to_uint8(future.frames))
        add("posterior", _to_uint8(model.decode(after, first_frame=last_frame)))
        add("other", _to_uint8(other.frames))
        for name in forecasts[0]:
            mean = torch.stack([forecast[name] for forecast in forecasts]).mean(0)
            add(f"predicted/{name}", mean.cpu().numpy())
            if name in batch.targets:
                add(f"recorded/{name}", batch.targets[name][:, context:].cpu().numpy())
        windows = data.windows(first[chosen], length, pose_names)
        pose = [windows[name][:, context - 2 :] for name in pose_names]
        add("pose", np.stack(pose, -1).astype(np.float64))
        add("actions", actions.cpu().numpy())
        if telemetry:
            rows = [batch.targets[name][:, :context].cpu().numpy() for name in telemetry]
            add("telemetry", np.stack(rows, -1))
    arrays = {name: np.concatenate(values) for name, values in parts.items()}
    empty = np.zeros((len(first), context, 0), np.float32)
    steps = [motion_between(*pose[:2].T, np.array(0), np.array(1)) for pose in arrays["pose"]]

    def by_head(prefix: str) -> dict[str, NDArray]:
        return {n.removeprefix(prefix): v for n, v in arrays.items() if n.startswith(prefix)}

    return Futures(
        real=arrays["real"],
        imagined=arrays["imagined"],
        posterior=arrays["posterior"],
        other=arrays["other"],
        context=arrays["context"],
        predicted=by_head("predicted/"),
        recorded=by_head("recorded/"),
        pose=arrays["pose"][:, 1:],
        actions=arrays["actions"],
        context_telemetry=arrays.get("telemetry", empty),
        last_step=steps,
    )


def _noise(
    model: WorldModel, first: NDArray[np.int64], rows: int, seed: int, *names: str | int
) -> torch.Tensor:
    """Latent noise (B, rows, ...). It depends on each clip, not on its position in the batch."""
    seeds = (derive(seed, *names, int(start)) for start in first)
    generators = (torch.Generator().manual_seed(clip_seed) for clip_seed in seeds)
    return torch.stack([model.core.latent.noise((rows,), generator) for generator in generators])


def _to_uint8(frames: torch.Tensor) -> NDArray[np.uint8]:
    return (255 * frames).round().to(torch.uint8).cpu().numpy()


@dataclass(frozen=True)
class CameraMotion:
    """The camera's motion measured in frames, and the true one, per clip.

    Attributes:
        yaw, forward: (n, pairs), measured motion since the last frame of the context.
        true_yaw, true_forward: (n, pairs), the same from the recorded pose.
        trusted: (n, pairs) bool, whether the registration's residual was small.
    """

    yaw: NDArray[np.float64]
    forward: NDArray[np.float64]
    true_yaw: NDArray[np.float64]
    true_forward: NDArray[np.float64]
    trusted: NDArray[np.bool_]

    def per_clip(self) -> dict[str, NDArray[np.float64]]:
        """Slope and correlation of measured against true motion, and final errors, (n,) each."""
        table: dict[str, list[float]] = {}
        for i in range(len(self.yaw)):
            for name in ("yaw", "forward"):
                measured, true = getattr(self, name)[i], getattr(self, f"true_{name}")[i]
                row = {
                    "slope": metrics.slope(measured, true),
                    "correlation": metrics.correlation(measured, true),
                    "final_error": abs(measured[-1] - true[-1]),
                    "final_share": abs(measured[-1] - true[-1]) / max(abs(true[-1]), 1e-6),
                }
                for key, value in row.items():
                    table.setdefault(f"{name}_{key}", []).append(value)
            table.setdefault("trusted", []).append(float(self.trusted[i].mean()))
        return {name: np.array(values) for name, values in table.items()}


def camera_motion(
    camera: PictureCamera, last: NDArray, frames: NDArray, pose: NDArray[np.float64]
) -> CameraMotion:
    """Measure the camera's motion in the frames of n clips.

    Args:
        camera: the camera of the pictures.
        last: (n, size, size, 3) uint8, the last frame of the context.
        frames: (n, H, size, size, 3) uint8, imagined or real.
        pose: (n, H + 1, 3), x, y and heading, starting at the last row of the context.
    """
    rows = np.arange(0, frames.shape[1] + 1, PAIR_EVERY)
    measured: list[list[Motion]] = []
    trusted = np.zeros((len(frames), len(rows) - 1), bool)
    true_yaw, true_forward = np.zeros(trusted.shape), np.zeros(trusted.shape)
    for i in range(len(frames)):
        selected = np.concatenate([last[i][None], frames[i]])[rows]
        luminance = metrics.grey(metrics.unit(selected))
        true = motion_between(*pose[i].T, rows[:-1], rows[1:])
        steps: list[Motion] = []
        guess = Motion(0.0, 0.0, 0.0)
        for pair in range(len(rows) - 1):
            registered = register(camera, luminance[pair], luminance[pair + 1], [guess])
            trusted[i, pair] = registered.residual < TRUSTED
            guess = registered.motion
            steps.append(registered.motion)
        measured.append(steps)
        composed = compose(true)
        true_yaw[i], true_forward[i] = composed.yaw, np.cumsum(true.forward)
    yaw = np.array([compose(_stack(steps)).yaw for steps in measured])
    forward = np.array([np.cumsum([step.forward for step in steps]) for steps in measured])
    return CameraMotion(yaw, forward, true_yaw, true_forward, trusted)


def _stack(steps: Sequence[Motion]) -> Motion:
    return Motion(*(np.array(part) for part in zip(*steps, strict=True)))
