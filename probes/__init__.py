"""Probes judge the predictions of a world model on clips selected by geometric rules.

`python -m probes <probe> checkpoint=...` lets the model see the context of every clip and then
imagine the rest open loop, with its prior alone. It compares imagined pictures, camera motion and
telemetry with the recorded ones, and with baselines that use no world model.
"""

import dreamracer  # noqa: F401  refuses foreign packages of the same names
from probes.bundle import ProbeConfig, Result, run_probe
from probes.clips import RULES

__all__ = ["RULES", "ProbeConfig", "Result", "run_probe"]
