"""World-model checkpoints: `load_world_model`, and the warm start from another rung's weights.

A file holds `format`, `model` (a `ModelConfig`), `weights` (target statistics included) and
`about`; last.pt also `training`, for an exact resume. Files of the first format are read too.
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
from rssm.world_model import WorldModel

FORMAT = "dreamracer/rssm/2"
FIRST_FORMAT = "dreamracer/rssm/1"
"""Had `network`, `heads` and `frames` in place of `model`, and heads.proceed in `weights`."""


def save(
    path: Path,
    model: WorldModel,
    about: Mapping[str, Any],
    training: Mapping[str, Any] | None = None,
    *,
    weights: Mapping[str, torch.Tensor] | None = None,
) -> None:
    """Write a checkpoint of `model`, all or nothing; `weights` are its own by default.

    Tensors that `training` shares with `weights` are stored once.
    """
    if weights is None:
        weights = {name: tensor.detach().cpu() for name, tensor in model.state_dict().items()}
    content = {
        "format": FORMAT,
        "model": dataclasses.asdict(model.config),
        "weights": dict(weights),
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
    path = resolve(path)
    required = {
        FORMAT: ("model", "weights"),
        FIRST_FORMAT: ("network", "heads", "frames", "weights"),
    }
    content = read_checkpoint(path, required)
    return _converted(content, path) if content["format"] == FIRST_FORMAT else content


def _converted(content: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """A checkpoint of the first format in the present one."""
    try:
        network, heads = dict(content["network"]), content["heads"]
        decoder = {"motion": network.pop("decode_motion", False)}
        heads = {
            "telemetry": heads["telemetry"],
            "off_track": heads["off"],
            "regression": heads["regression"],
        }
        frames = content["frames"]
        weights = {
            name.replace("heads.proceed.", "heads.continuation."): tensor
            for name, tensor in content["weights"].items()
        }
        model = {
            "network": network,
            "heads": heads,
            "decoder": decoder,
            "frame_size": frames["size"],
            "frame_channels": frames["depth"],
        }
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{path}: its description of the model is damaged: {error!r}") from None
    kept = {name: content[name] for name in ("about", "training") if name in content}
    return {"format": FORMAT, "model": model, "weights": weights, **kept}


def build(content: Mapping[str, Any], where: str | os.PathLike) -> WorldModel:
    """The model in a loaded checkpoint, on the CPU; `where` is for messages."""
    try:
        config = schema.build(ModelConfig, content["model"])
        with torch.device("meta"):  # no memory is spent before the sizes are known to agree
            model = WorldModel(config)
        weights = {
            name: tensor.float() if tensor.dtype == torch.float16 else tensor
            for name, tensor in content["weights"].items()
        }
        check_tensors(model, weights)
        model.load_state_dict(weights, assign=True)
    except (ConfigError, LookupError, ValueError, TypeError, AttributeError, RuntimeError) as error:
        raise UserError(
            f"{where}: the weights do not fit the model that it describes: {error}"
        ) from None
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
    """What a warm start copied, by name of weight.

    Attributes:
        copied: from the checkpoint.
        missing: in the model, not in the checkpoint: left as initialised.
        mismatched: in both with different shapes, as "name (there) (here)": left as initialised.
        unused: in the checkpoint only.
    """

    copied: list[str]
    missing: list[str]
    mismatched: list[str]
    unused: list[str]

    def lines(self) -> list[str]:
        """For people: a count, and every weight that was not copied."""
        text = [f"warm start: {len(self.copied)} weights copied"]
        for label in ("missing", "mismatched", "unused"):
            text += [f"  {label}: {name}" for name in getattr(self, label)]
        return text


def warm_start(model: WorldModel, path: str | os.PathLike) -> WarmStart:
    """Copy into `model` every weight of a checkpoint that fits it by name and shape.

    Target statistics are not copied: they belong to the data that is trained on.

    Raises:
        UserError: as `load_world_model`; or no weight fits at all.
    """
    source = build(load(path), path).state_dict()
    target = model.state_dict()
    names = [name for name in target if name not in ("heads.mean", "heads.std")]
    shared = [name for name in names if name in source]
    copied = [name for name in shared if source[name].shape == target[name].shape]
    if not copied:
        raise UserError(f"{path} has no weight that fits this model")
    with torch.no_grad():
        for name in copied:
            target[name].copy_(source[name])
    return WarmStart(
        copied,
        missing=[name for name in names if name not in source],
        mismatched=[
            f"{name} {tuple(source[name].shape)} {tuple(target[name].shape)}"
            for name in shared
            if source[name].shape != target[name].shape
        ],
        unused=[name for name in source if name not in target],
    )
