"""The noise of one configuration is measured from runs, and goes on after an interruption."""

import numpy as np
import pytest

from autoresearch.loop.campaign import Campaign
from autoresearch.loop.noise import measure
from common.errors import UserError
from tests.autoresearch import toys


def test_noise_is_measured_from_runs_and_taken_up_again(tmp_path):
    config = toys.config(tmp_path, executor={"jobs": 2})
    with Campaign.opened(config, lambda text: None) as campaign:
        noise = measure(campaign, 3, 10)
        runs = len(campaign.state.runs)
    with Campaign.opened(config, lambda text: None) as campaign:
        again = measure(campaign, 3, 10)
        assert len(campaign.state.runs) == runs == 6
    np.testing.assert_array_equal(noise.primary, again.primary)
    assert noise.primary.shape == (3, 10) and noise.primary.std(0).mean() > 0.005
    assert noise.seconds > 0


def test_a_run_that_fails_ends_a_calibration(tmp_path):
    space = {"skill": {"low": 0, "high": 1}}
    commands = {"train": [*toys.COMMANDS["train"], "crash=1"]}
    config = toys.config(tmp_path, commands=commands, space=space)
    with (
        Campaign.opened(config, lambda text: None) as campaign,
        pytest.raises(UserError, match="run_001 of the calibration failed: crash"),
    ):
        measure(campaign, 2, 10)
