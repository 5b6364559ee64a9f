"""Checkpoint files: what is in them, and how a damaged or foreign one is refused.

A file holds `format`, `spec` (frames that the policy needs), `network`, `policy` (weights) and
`about` (provenance); last.pt also `training`, all that an exact resume needs. Only tensors and
plain data: loading one never runs code from it.
"""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from common import schema
from common.errors import ConfigError, UserError
from common.torch.checkpoint import check_tensors, read_checkpoint, write_checkpoint
from envs.racing.config import ObservationSpec
from ppo.config import PolicyConfig
from ppo.policy import ActorCritic

FORMAT = "dreamracer/ppo/1"


def save(
    path: Path,
    weights: Mapping[str, torch.Tensor],
    spec: ObservationSpec,
    network: PolicyConfig,
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
    write_checkpoint(path, content)


def load(path: str | os.PathLike) -> dict[str, Any]:
    """The content of the checkpoint at `path`; `UserError` if it is not one of ours."""
    return read_checkpoint(path, {FORMAT: ("spec", "network", "policy")})


def build_policy(
    content: Mapping[str, Any], where: str | os.PathLike
) -> tuple[ActorCritic, ObservationSpec]:
    """The policy in a loaded checkpoint, on the CPU, and its frames; `where` is for messages."""
    try:
        spec = schema.build(ObservationSpec, content["spec"])
        network = schema.build(PolicyConfig, content["network"])
        with torch.device("meta"):  # no memory is spent before the sizes are known to agree
            policy = ActorCritic(spec, network)
        check_tensors(policy, content["policy"])
        policy.load_state_dict(content["policy"], assign=True)
        bounds = list(zip(policy.low.tolist(), policy.high.tolist(), strict=True))
        if bounds != list(policy.controls.values()):
            raise ValueError(f"the bounds of the controls are {bounds}")
    except (ConfigError, ValueError, TypeError, AttributeError, RuntimeError) as error:
        raise UserError(f"{where}: the weights do not fit the network they name: {error}") from None
    if not all(torch.isfinite(p).all() for p in policy.parameters()):
        raise UserError(f"{where}: some weights are not finite; the training run diverged")
    return policy, spec
