"""Known ways in which a driver goes wrong, as typed results.

Each check looks at the numbers of one row of metrics and says what it saw. They are hints to the
person at the screen and, in metrics and eval.json, to programs that screen runs.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

SATURATED = 0.95


@dataclass(frozen=True)
class Finding:
    """A failure by name, the number that shows it, and the limit that the number crossed."""

    name: str
    value: float
    limit: float
    message: str


def action_statistics(actions: Tensor) -> dict[str, float]:
    """Means and shares over the actions (n, 3) of a rollout: steer, gas, brake."""
    steer, gas, brake = actions.unbind(-1)
    values = {
        "steer_mean": steer.mean(),
        "steer_std": steer.std(correction=0),
        "steer_saturated": (steer.abs() > SATURATED).float().mean(),
        "gas_mean": gas.mean(),
        "gas_saturated": (gas > SATURATED).float().mean(),
        "brake_mean": brake.mean(),
        "brake_used": (brake > 0.1).float().mean(),
    }
    return {name: value.item() for name, value in values.items()}


def diagnose(row: Mapping[str, Any]) -> list[Finding]:
    """The failures that a row of metrics shows; none for a healthy run.

    Reads `action/...`, `ppo/...` and `episode/...`; what is absent is not judged.
    """

    def get(name: str) -> float:
        value = row.get(name)
        return math.nan if value is None else float(value)  # every comparison with nan is false

    findings = []
    if get("action/steer_saturated") > 0.9 and abs(get("action/steer_mean")) > 0.85:
        findings.append(
            Finding("steering_collapse", get("action/steer_mean"), 0.85,
                    "the car steers to one side whatever it sees")
        )  # fmt: skip
    if get("action/gas_saturated") > 0.95 and get("action/brake_used") < 0.005:
        findings.append(
            Finding("throttle_saturation", get("action/gas_saturated"), 0.95,
                    "full gas always, the brake never")
        )  # fmt: skip
    widest = max(get(f"ppo/std_{action}") for action in ("steer", "gas", "brake"))
    if widest < 0.03:  # the density's entropy says less: it also falls when tanh saturates
        findings.append(
            Finding("entropy_collapse", widest, 0.03,
                    "the policy hardly explores any more; raise ppo.network.log_std_min")
        )  # fmt: skip
    if get("ppo/skipped_steps") > 0:
        findings.append(
            Finding("non_finite", get("ppo/skipped_steps"), 0.0,
                    "optimiser steps were skipped because a loss was not finite")
        )  # fmt: skip
    return findings
