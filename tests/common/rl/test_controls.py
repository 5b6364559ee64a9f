"""Decisions become pedals, are held, and are played again."""

import numpy as np
import pytest
import torch

from common.rl.controls import CONTROLS, Recorded, press, ticks_since_decision


def test_one_pedal_is_gas_above_zero_and_its_square_the_brake_below():
    controls = torch.tensor([[[0.3, 0.5], [-1.0, -0.5]], [[0.0, 0.0], [0.2, -1.0]]])
    expected = [[[0.3, 0.5, 0.0], [-1.0, 0.0, 0.25]], [[0.0, 0.0, 0.0], [0.2, 0.0, 1.0]]]
    assert torch.equal(press(controls), torch.tensor(expected))
    two = torch.rand(4, len(CONTROLS["two"]))
    assert press(two) is two


def test_a_pedal_that_is_pressed_has_a_gradient():
    controls = torch.tensor([[0.1, 0.5], [0.1, -0.5]], requires_grad=True)
    press(controls).sum().backward()
    assert controls.grad.tolist() == [[1.0, 1.0], [1.0, -1.0]]  # d(p^2)/dp = 2p at -0.5


def test_an_action_is_held_until_its_time_is_over_or_an_episode_starts():
    ticks, decided = np.array([0, 0]), []
    for tick in range(8):
        first = np.array([tick == 0, tick in (0, 4)])
        ticks, due = ticks_since_decision(ticks, first, 3)
        decided.append(due.tolist())
    assert [tick for tick, (one, _) in enumerate(decided) if one] == [0, 3, 6]
    assert [tick for tick, (_, two) in enumerate(decided) if two] == [0, 3, 4, 7]


def test_recorded_actions_play_from_the_start_of_every_episode():
    policy = Recorded([(0, 0.1, 0), (0, 0.2, 0), (0, 0.3, 0)])
    carry, gas = policy.initial(2), []
    for tick in range(5):
        first = np.array([tick == 0, tick in (0, 2)])
        action, carry = policy.act(carry, np.zeros((2, 0), np.float32), first)
        gas.append(np.round(10 * action[:, 1]).astype(int).tolist())
    assert gas == [[1, 1], [2, 2], [3, 1], [3, 2], [3, 3]]
    with pytest.raises(ValueError, match="no recorded actions"):
        Recorded(np.zeros((0, 3)))
