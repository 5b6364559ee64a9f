"""World-model checkpoints: `load_world_model`, and the warm start from another rung's weights.

A file holds `format`, `network`, `heads` (telemetry, off, regression), `frames` (size, depth),
`weights` (target statistics included) and `about`; last.pt also `training`, for an exact resume.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from common import schema
from common.errors import ConfigError, UserError
from common.runs import checkpoint_in
from common.torch.checkpoint import check_tensors, read_checkpoint, write_checkpoint
from rssm.config import ModelConfig
from rssm.model.world_model import WorldModel

FORMAT = "dreamracer/rssm/1"


def save(
    path: Path,
    model: WorldModel,
    about: Mapping[str, Any],
    training: Mapping[str, Any] | None = None,
) -> None:
    """Write a checkpoint of `model`, all or nothing."""
    content = {
        "format": FORMAT,
        "network": dataclasses.asdict(model.network),
        "heads": {
            "telemetry": list(model.heads.telemetry),
            "off": model.heads.has_off,
            "regression": model.heads.regression,
        },
        "frames": {"size": model.size, "depth": model.depth},
        "weights": {name: tensor.detach().cpu() for name, tensor in model.state_dict().items()},
        "about": dict(about),
    }
    if training is not None:
        content["training"] = dict(training)
    write_checkpoint(path, content)


def export(path: str | os.PathLike, source: str | os.PathLike) -> None:
    """Write the checkpoint `source` to `path` with its parameters in half precision and without
    what training would need: half the size, for results that are committed."""
    content = load(source)
    names = {name for name, _ in build(content, source).named_parameters()}
    weights = {
        name: tensor.half() if name in names else tensor
        for name, tensor in content["weights"].items()
    }
    kept = {name: part for name, part in content.items() if name not in ("weights", "training")}
    write_checkpoint(path, kept | {"weights": weights})


def resolve(path: str | os.PathLike) -> Path:
    """`path` itself, or the final checkpoint of the run directory that it names, else its last;
    `UserError` for a directory without."""
    return checkpoint_in(path, ("final.pt", "last.pt"))


def load(path: str | os.PathLike) -> dict[str, Any]:
    """The content of the checkpoint at `path` (a file or a run); `UserError` if it is not ours."""
    return read_checkpoint(resolve(path), FORMAT, ("network", "heads", "frames", "weights"))


def build(content: Mapping[str, Any], where: str | os.PathLike) -> WorldModel:
    """The model in a loaded checkpoint, on the CPU; `where` is for messages."""
    try:
        network = schema.build(ModelConfig, content["network"])
        heads, frames = content["heads"], content["frames"]
        with torch.device("meta"):  # no memory is spent before the sizes are known to agree
            model = WorldModel(
                network,
                tuple(heads["telemetry"]),
                heads["off"],
                heads["regression"],
                size=frames["size"],
                depth=frames["depth"],
            )
        weights = {
            name: tensor.float() if tensor.dtype == torch.float16 else tensor
            for name, tensor in content["weights"].items()
        }
        check_tensors(model, weights)
        model.load_state_dict(weights, assign=True)
    except (ConfigError, LookupError, ValueError, TypeError, AttributeError, RuntimeError) as error:
        raise UserError(f"{where}: the weights do not fit the network they name: {error}") from None
    if not all(torch.isfinite(p).all() for p in model.parameters()):
        raise UserError(f"{where}: some weights are not finite; the training run diverged")
    return model


def load_world_model(path: str | os.PathLike, device: str | torch.device = "cpu") -> WorldModel:
    """The world model in a checkpoint (a file or a run), ready to `observe` and `imagine`.

    Attributes of the result: `about`, the checkpoint's provenance.

    Raises:
        UserError: the file cannot be read, is damaged, or is no world model.
    """
    content = load(path)
    model = build(content, path).to(device).eval()
    model.about = content["about"]
    return model


@dataclass(frozen=True)
class WarmStart:
    """What a warm start took over, by name of weight.

    Attributes:
        taken: copied.
        missing: in the model, not in the checkpoint: left as initialised.
        mismatched: in both with different shapes, as "name (there) (here)": left as initialised.
        unused: in the checkpoint only.
    """

    taken: list[str]
    missing: list[str]
    mismatched: list[str]
    unused: list[str]

    def lines(self) -> list[str]:
        """For people: a count, and every weight that was not taken."""
        text = [f"warm start: {len(self.taken)} weights taken"]
        for label in ("missing", "mismatched", "unused"):
            text += [f"  {label}: {name}" for name in getattr(self, label)]
        return text


def warm_start(model: WorldModel, path: str | os.PathLike) -> WarmStart:
    """Copy into `model` every weight of a checkpoint that fits it by name and shape.

    Target statistics are not taken: they belong to the data that is trained on.

    Raises:
        UserError: as `load_world_model`; or no weight fits at all.
    """
    given = build(load(path), path).state_dict()
    own = model.state_dict()
    names = [name for name in own if name not in ("heads.mean", "heads.std")]
    taken = [name for name in names if name in given and given[name].shape == own[name].shape]
    if not taken:
        raise UserError(f"{path} has no weight that fits this model")
    with torch.no_grad():
        for name in taken:
            own[name].copy_(given[name])
    mismatched = [
        f"{name} {tuple(given[name].shape)} {tuple(own[name].shape)}"
        for name in names
        if name in given and given[name].shape != own[name].shape
    ]
    return WarmStart(
        taken,
        [name for name in names if name not in given],
        mismatched,
        [name for name in given if name not in own],
    )
