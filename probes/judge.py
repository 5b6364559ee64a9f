"""A checkpoint against clips: imagine the horizon, open loop, and compare it with what happened.

The model sees the context (frames and actions), then only the recorded actions: prior only. All
pictures are compared with baselines that know no model, and telemetry with persistence and a
regression that sees no pixels.
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
"""Residual of a registration, in grey, above which it is not trusted."""


@dataclass(frozen=True)
class Futures:
    """What n clips showed and what was imagined, H rows each.

    Attributes:
        real, imagined, posterior: (n, H, size, size, 3) uint8, as a screen shows them; posterior is
            what the decoder makes of states that saw the frames, the ceiling of the decoder.
        other: (n, H, size, size, 3) uint8, imagined with another clip's actions and the same noise.
        context: (n, C, size, size, 3) uint8, the frames before.
        predicted: (n, H) by head: the mean over `samples` futures from the same state, the point
            forecast of a model that only draws. Pictures are the first one's.
        recorded: (n, H) by head, and pose x, y, heading from the last row of context on, (n, H+1).
        actions: (n, H, 3); context_telemetry: (n, C, k) of the regressed names.
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
    """Imagine the horizon of every clip from its context, telemetry `samples` times."""
    reader = Reader(data, *model.heads.targets)
    telemetry = model.heads.telemetry
    pose_names = ("telemetry/x", "telemetry/y", "telemetry/heading")
    length = context + horizon
    device = next(model.parameters()).device
    first = starts(list(clips))
    partner = np.roll(np.arange(len(first)), 1 + len(first) // 3)
    parts: dict[str, list[NDArray]] = {}

    def keep(name: str, values: NDArray) -> None:
        parts.setdefault(name, []).append(values)

    for begin in range(0, len(first), BATCH):
        chosen = np.arange(begin, min(begin + BATCH, len(first)))
        batch = reader.batch(first[chosen], length).to(device)
        actions = batch.action[:, context:]
        others = data.windows(first[partner[chosen]], length, ["action"])["action"]
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
            drawn = _noise(model, first[chosen], horizon, seed, "sample", sample).to(device)
            drawn = model.imagine(last, actions, noise=drawn)
            forecasts.append(drawn.predictions.by_head())
        other_actions = torch.from_numpy(others[:, context:]).to(device)
        other = model.imagine(
            last, other_actions, noise=noise[:, context:], pixels=True, first_frame=last_frame
        )
        after = State(*(part[:, context:] for part in observed.state))
        frames = batch.observation.cpu().numpy()
        keep("real", frames[:, context:])
        keep("context", frames[:, :context])
        keep("imagined", _shown(future.frames))
        keep("posterior", _shown(model.decode(after, first_frame=last_frame)))
        keep("other", _shown(other.frames))
        for name in forecasts[0]:
            mean = torch.stack([forecast[name] for forecast in forecasts]).mean(0)
            keep(f"predicted/{name}", mean.cpu().numpy())
            if name in batch.targets:
                keep(f"recorded/{name}", batch.targets[name][:, context:].cpu().numpy())
        windows = data.windows(first[chosen], length, pose_names)
        pose = [windows[name][:, context - 2 :] for name in pose_names]
        keep("pose", np.stack(pose, -1).astype(np.float64))
        keep("actions", actions.cpu().numpy())
        if telemetry:
            rows = [batch.targets[name][:, :context].cpu().numpy() for name in telemetry]
            keep("telemetry", np.stack(rows, -1))
    whole = {name: np.concatenate(values) for name, values in parts.items()}
    empty = np.zeros((len(first), context, 0), np.float32)
    steps = [motion_between(*pose[:2].T, np.array(0), np.array(1)) for pose in whole["pose"]]
    return Futures(
        whole["real"],
        whole["imagined"],
        whole["posterior"],
        whole["other"],
        whole["context"],
        {n.partition("/")[2]: v for n, v in whole.items() if n.startswith("predicted/")},
        {n.partition("/")[2]: v for n, v in whole.items() if n.startswith("recorded/")},
        whole["pose"][:, 1:],
        whole["actions"],
        whole.get("telemetry", empty),
        steps,
    )


def _noise(
    model: WorldModel, first: NDArray[np.int64], rows: int, seed: int, *names: str | int
) -> torch.Tensor:
    """Latent noise (B, rows, ...) that belongs to the clips, not to their places in a batch."""
    generators = (torch.Generator().manual_seed(derive(seed, *names, int(f))) for f in first)
    return torch.stack([model.core.latent.noise((rows,), each) for each in generators])


def _shown(frames: torch.Tensor) -> NDArray[np.uint8]:
    return (255 * frames).round().to(torch.uint8).cpu().numpy()


@dataclass(frozen=True)
class CameraMotion:
    """Motion read from frames against the true one, per clip.

    Attributes:
        yaw, forward: (n, pairs) composed from the context's last frame, read from the frames.
        true_yaw, true_forward: (n, pairs).
        trusted: (n, pairs) bool, the registration's residual was small.
    """

    yaw: NDArray[np.float64]
    forward: NDArray[np.float64]
    true_yaw: NDArray[np.float64]
    true_forward: NDArray[np.float64]
    trusted: NDArray[np.bool_]

    def per_clip(self) -> dict[str, NDArray[np.float64]]:
        """(n,) each: slope and correlation of the read motion over the true, and final error."""
        table: dict[str, list[float]] = {}
        for i in range(len(self.yaw)):
            for name in ("yaw", "forward"):
                found, true = getattr(self, name)[i], getattr(self, f"true_{name}")[i]
                row = {
                    "slope": metrics.slope(found, true),
                    "correlation": metrics.correlation(found, true),
                    "final_error": abs(found[-1] - true[-1]),
                    "final_share": abs(found[-1] - true[-1]) / max(abs(true[-1]), 1e-6),
                }
                for key, value in row.items():
                    table.setdefault(f"{name}_{key}", []).append(value)
            table.setdefault("trusted", []).append(float(self.trusted[i].mean()))
        return {name: np.array(values) for name, values in table.items()}


def camera_motion(
    camera: PictureCamera, last: NDArray, frames: NDArray, pose: NDArray[np.float64]
) -> CameraMotion:
    """Read the camera's motion from the frames of n clips.

    Args:
        camera: of the pictures.
        last: (n, size, size, 3) uint8, the last frame of the context.
        frames: (n, H, size, size, 3) uint8, imagined or real.
        pose: (n, H + 1, 3), x, y, heading from the last row of the context on.
    """
    rows = np.arange(0, frames.shape[1] + 1, PAIR_EVERY)
    read: list[list[Motion]] = []
    trusted = np.zeros((len(frames), len(rows) - 1), bool)
    true_yaw, true_forward = np.zeros(trusted.shape), np.zeros(trusted.shape)
    for i in range(len(frames)):
        shown = np.concatenate([last[i][None], frames[i]])[rows]
        luminance = metrics.grey(metrics.unit(shown))
        true = motion_between(*pose[i].T, rows[:-1], rows[1:])
        steps: list[Motion] = []
        guess = Motion(0.0, 0.0, 0.0)
        for k in range(len(rows) - 1):
            found = register(camera, luminance[k], luminance[k + 1], [guess])
            trusted[i, k] = found.residual < TRUSTED
            guess = found.motion
            steps.append(found.motion)
        read.append(steps)
        composed = compose(true)
        true_yaw[i], true_forward[i] = composed.yaw, np.cumsum(true.forward)
    yaw = np.array([compose(_stack(steps)).yaw for steps in read])
    forward = np.array([np.cumsum([step.forward for step in steps]) for steps in read])
    return CameraMotion(yaw, forward, true_yaw, true_forward, trusted)


def _stack(steps: Sequence[Motion]) -> Motion:
    return Motion(*(np.array(part) for part in zip(*steps, strict=True)))
