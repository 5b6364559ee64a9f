"""Checkpoint files: what is in them, and how a damaged or foreign one is refused.

A file holds `format`, `spec` (frames that the policy needs), `network`, `policy` (weights) and
`about` (provenance); last.pt also `training`, all that an exact resume needs. Only tensors and
plain data: loading one never runs code from it.
"""

import dataclasses
import io
import os
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from common import schema
from common.errors import ConfigError, UserError
from common.files import atomic_write_bytes
from envs.racing.config import ObservationSpec
from ppo.config import NetworkConfig
from ppo.policy import ActorCritic

FORMAT = "dreamracer/ppo/1"


def save(
    path: Path,
    weights: Mapping[str, torch.Tensor],
    spec: ObservationSpec,
    network: NetworkConfig,
    about: Mapping[str, Any],
    training: Mapping[str, Any] | None = None,
) -> None:
    """Write a checkpoint with a policy's `weights`, all or nothing."""
    content = {
        "format": FORMAT,
        "spec": dataclasses.asdict(spec),
        "network": dataclasses.asdict(network),
        "policy": dict(weights),
        "about": dict(about),
    }
    if training is not None:
        content["training"] = dict(training)
    buffer = io.BytesIO()
    torch.save(to_tensors(content), buffer)
    atomic_write_bytes(path, buffer.getvalue())


def load(path: str | os.PathLike) -> dict[str, Any]:
    """The content of the checkpoint at `path`; `UserError` if it is not one of ours."""
    path = Path(path)
    if path.is_dir():
        raise UserError(f"{path} is a directory; name a file such as {path}/checkpoints/best.pt")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read the checkpoint {path}: {error.strerror}") from None
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            damaged = archive.testzip()  # torch itself does not compare the checksums
        if damaged is not None:
            raise zipfile.BadZipFile(damaged)
        with warnings.catch_warnings(action="ignore"):  # about files that are refused anyway
            content = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except Exception as error:
        # torch raises half a dozen types, depending on which byte is wrong.
        raise UserError(
            f"{path} is not a readable checkpoint: damaged, cut short, or not a file of weights"
        ) from error
    if not isinstance(content, dict) or "format" not in content:
        raise UserError(f"{path} is not a checkpoint of ppo: it holds no 'format'")
    if content["format"] != FORMAT:
        raise UserError(f"{path} has format {content['format']!r}; this version reads {FORMAT!r}")
    missing = {"spec", "network", "policy", "about"} - content.keys()
    if missing:
        raise UserError(f"{path} is incomplete: no {', '.join(sorted(missing))}")
    if not (isinstance(content["about"], dict) and _is_plain(content["about"])):
        raise UserError(f"{path} is damaged: 'about' is no mapping of plain data")
    return content


def build_policy(
    content: Mapping[str, Any], where: str | os.PathLike
) -> tuple[ActorCritic, ObservationSpec]:
    """The policy in a loaded checkpoint, on the CPU, and its frames; `where` is for messages."""
    try:
        spec = schema.build(ObservationSpec, content["spec"])
        network = schema.build(NetworkConfig, content["network"])
        with torch.device("meta"):  # no memory is spent before the sizes are known to agree
            policy = ActorCritic(spec, network)
        for name, tensor in policy.state_dict().items():
            given = content["policy"].get(name, tensor)
            if (given.dtype, given.layout) != (tensor.dtype, tensor.layout):
                raise TypeError(f"{name} is {given.dtype}, {given.layout}, not {tensor.dtype}")
        policy.load_state_dict(content["policy"], assign=True)
        bounds = list(zip(policy.low.tolist(), policy.high.tolist(), strict=True))
        if bounds != list(policy.controls.values()):
            raise ValueError(f"the bounds of the controls are {bounds}")
    except (ConfigError, ValueError, TypeError, AttributeError, RuntimeError) as error:
        raise UserError(f"{where}: the weights do not fit the network they name: {error}") from None
    if not all(torch.isfinite(p).all() for p in policy.parameters()):
        raise UserError(f"{where}: some weights are not finite; the training run diverged")
    return policy, spec


def _is_plain(tree: Any) -> bool:
    match tree:
        case None | bool() | int() | float() | str():
            return True
        case list() | tuple():
            return all(map(_is_plain, tree))
        case dict():
            return all(isinstance(k, str) and _is_plain(v) for k, v in tree.items())
    return False


def to_tensors(tree: Any) -> Any:
    """`tree` with numpy arrays as tensors and numpy scalars as plain numbers."""
    match tree:
        case np.ndarray():
            return torch.from_numpy(np.array(tree))
        case np.generic():
            return tree.item()
        case Mapping():
            return {key: to_tensors(value) for key, value in tree.items()}
        case list() | tuple():
            return type(tree)(map(to_tensors, tree))
    return tree


def to_arrays(tree: Any) -> Any:
    """`tree` with tensors as numpy arrays: the inverse of `to_tensors`, but for scalars."""
    match tree:
        case torch.Tensor():
            return tree.numpy()
        case Mapping():
            return {key: to_arrays(value) for key, value in tree.items()}
        case list() | tuple():
            return type(tree)(map(to_arrays, tree))
    return tree
