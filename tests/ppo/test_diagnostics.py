import pytest
import torch

from ppo.diagnostics import action_statistics, diagnose

HEALTHY = {
    "action/steer_mean": 0.02, "action/steer_saturated": 0.1,
    "action/gas_saturated": 0.4, "action/brake_used": 0.1,
    "ppo/std_steer": 0.3, "ppo/std_gas": 0.3, "ppo/std_brake": 0.02, "ppo/skipped_steps": 0.0,
}  # fmt: skip


def test_a_healthy_row_is_not_flagged():
    assert diagnose(HEALTHY) == []
    assert diagnose({}) == []
    assert diagnose({"ppo/std_gas": None}) == []


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("steering_collapse", {"action/steer_mean": -0.95, "action/steer_saturated": 0.97}),
        ("throttle_saturation", {"action/gas_saturated": 0.99, "action/brake_used": 0.0}),
        ("entropy_collapse", {"ppo/std_steer": 0.02, "ppo/std_gas": 0.01}),
        ("non_finite", {"ppo/skipped_steps": 1.0}),
    ],
)
def test_each_failure_has_its_name(name, changes):
    (finding,) = diagnose(HEALTHY | changes)
    assert finding.name == name
    assert finding.value in changes.values()
    assert finding.value != finding.limit


def test_weaving_hard_is_not_collapse():
    assert diagnose(HEALTHY | {"action/steer_saturated": 1.0, "action/steer_mean": 0.1}) == []


def test_action_statistics():
    actions = torch.tensor([[1.0, 0.5, 0.0], [-1.0, 1.0, 0.2], [0.5, 0.0, 0.0], [0.5, 0.0, 0.0]])
    result = action_statistics(actions)
    assert result["steer_mean"] == 0.25
    assert result["steer_saturated"] == 0.5
    assert result["gas_saturated"] == 0.25
    assert result["gas_mean"] == 0.375
    assert result["brake_used"] == 0.25
