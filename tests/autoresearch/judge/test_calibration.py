"""Error rates of the gates, measured on noise whose truth is known."""

import dataclasses
import subprocess
import sys

import numpy as np
import pytest

from autoresearch.__main__ import CONFIGURATIONS, campaigns, load, main
from autoresearch.config import Gates, Guard, Measure
from autoresearch.judge.calibration import Noise, best_of_three, keep_calibration, measure, simulate
from autoresearch.loop.campaign import Campaign
from autoresearch.report.page import calibration
from common.errors import ConfigError, UserError
from common.records import read_record
from tests.autoresearch import toys

GATES = Gates(
    Measure("progress", 1, 2.0), guards=(Guard(Measure("off_track_rate", -1), 0.1, 0.4),), cap=100
)
SMALL = {"campaigns": 300, "generations": 2, "candidates": 2, "seed": 0}


@pytest.fixture(scope="module")
def noise():
    """Runs whose luck is a tenth of a lap, on tracks that differ by as much."""
    rng = np.random.default_rng(0)
    seeds, tracks = rng.normal(0, 0.1, (24, 1)), rng.normal(0, 0.1, (1, 100))
    primary = (0.5 + seeds + tracks + rng.normal(0, 0.1, (24, 100))).clip(0, 1)
    return Noise(primary, {"off_track_rate": np.full((24, 100), 0.02)}, 60.0)


def test_luck_is_hardly_ever_promoted(noise):
    told = simulate(noise, GATES, effect=0.0, **SMALL)
    assert told["promoted"]["mean"] <= 0.03 and told["promoted"]["n"] == 300
    assert told["screened"]["mean"] > 0.2  # lucky checkpoints are better checkpoints
    assert told["runs"] >= 6 and told["minutes"] == pytest.approx(told["runs"])


def test_a_large_effect_is_found(noise):
    told = simulate(noise, GATES, effect=0.3, **SMALL)
    assert told["promoted"]["mean"] > 0.8


def test_a_gain_bought_with_grass_is_not_promoted(noise):
    grass = dataclasses.replace(noise, guards={"off_track_rate": np.full((24, 100), 0.5)})
    assert simulate(grass, GATES, effect=0.3, **SMALL)["promoted"]["mean"] == 0


def test_the_best_of_three_promotes_luck_more_often_than_not(noise):
    told = best_of_three(noise, effect=0.0, trials=4000, seed=0)
    assert told["promoted"]["mean"] > 0.5 and told["inflation"] > 0.02


def test_noise_is_measured_from_runs_and_taken_up_again(tmp_path):
    config = toys.config(tmp_path, executor={"jobs": 2})
    with Campaign.opened(config, lambda text: None) as campaign:
        found = measure(campaign, 3, 10)
        runs = len(campaign.state.runs)
    with Campaign.opened(config, lambda text: None) as campaign:
        again = measure(campaign, 3, 10)
        assert len(campaign.state.runs) == runs == 6
    np.testing.assert_array_equal(found.primary, again.primary)
    assert found.primary.shape == (3, 10) and found.primary.std(0).mean() > 0.005
    assert found.seconds > 0


def test_a_run_that_fails_ends_a_calibration(tmp_path):
    space = {"skill": {"low": 0, "high": 1}}
    commands = {"train": [*toys.COMMANDS["train"], "crash=1"]}
    config = toys.config(tmp_path, commands=commands, space=space)
    with (
        Campaign.opened(config, lambda text: None) as campaign,
        pytest.raises(UserError, match="run_001 of the calibration failed: crash"),
    ):
        measure(campaign, 2, 10)


def test_a_kept_calibration_becomes_a_part_of_the_report(tmp_path):
    config, _ = load(["campaign=control_49k"])
    share = {"mean": 0.0025, "low": 0.002, "high": 0.003, "n": 10_000}
    gates = {"effect": 0.0, "promoted": share, "screened": share, "runs": 20.0, "minutes": 30.0}
    found = {
        "mean": 0.7, "sd_over_seeds": 0.1, "sd_over_units": 0.2, "seconds_per_run": 80.0,
        "runs": 24, "units": 100, "campaigns": 10_000, "means": [0.6, 0.8], "gates": [gates],
        "best_of_three": [{"effect": 0.0, "promoted": share | {"mean": 0.7}, "inflation": 0.1}],
    }  # fmt: skip
    keep_calibration(found, config, "python", directory=tmp_path)
    record = read_record("calibration_control_49k", tmp_path)
    text = calibration(record)
    assert "of control_49k" in text and "0.0025 [0.002, 0.003]" in text
    assert record["settings"]["seeds"] == [config.gates.claim(g)[1] for g in range(1, 5)]


class TestCommand:
    def test_every_shipped_campaign_is_valid(self):
        assert campaigns()
        for name in campaigns():
            config, _ = load([f"campaign={name}"])
            assert config.name == name
            alpha, seeds = config.gates.claim(config.budgets.generations)
            assert 0 < alpha < 0.05 and seeds >= 6

    def test_settings_follow_as_name_value(self):
        config, own = load(
            ["campaign=control_49k", "proposer.kind=random", "executor.jobs=1", "runs=3"], ("runs",)
        )
        assert config.proposer.kind == "random" and config.executor.jobs == 1
        assert own == {"runs": "3"}

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (["run"], "name a campaign"),
            (["run", "campaign=contrl_49k"], "did you mean 'control_49k'"),
            (["run", "campaign=control_49k", "proposer.knd=random"], "did you mean"),
            (["run", "campaign=control_49k", "budget=0"], "budget is at least 1"),
            (["run", "campaign=control_49k", "gates.alpha=2"], "gates.alpha is between 0 and 1"),
            (["run", "control_49k"], "write name=value"),
            (["rn"], "did you mean 'run'"),
            (["show", "campaign=control_49k"], "show takes one name"),
            (["calibrate", "campaign=control_49k", "runs=many"], "not a whole number"),
            (["calibrate", "campaign=control_49k", "effects=big"], "effects are numbers"),
            (["calibrate", "campaign=control_49k", "effects=0,nan"], "effects are finite"),
            (["final", "campaign=control_49k", "root=nowhere"], "no such ledger"),
            (["status", "campaign=control_49k", "root=nowhere"], "no such ledger"),
        ],
    )
    def test_mistakes_are_explained(self, tmp_path, monkeypatch, words, message):
        monkeypatch.chdir(tmp_path)
        with pytest.raises((UserError, ConfigError), match=message):
            main(words)
        assert not list(tmp_path.iterdir())

    def test_a_broken_file_is_told(self, tmp_path, monkeypatch):
        import autoresearch.__main__ as command

        (tmp_path / "broken.yaml").write_text("budget: [1\n")
        monkeypatch.setattr(command, "CONFIGURATIONS", tmp_path)
        with pytest.raises(ConfigError, match=r"broken\.yaml"):
            load(["campaign=broken"])
        assert tmp_path != CONFIGURATIONS

    def test_it_says_what_it_can_do_and_rejects_the_earlier_record(self):
        done = subprocess.run(
            [sys.executable, "-m", "autoresearch", "earlier"], capture_output=True, text=True,
            cwd=CONFIGURATIONS.parents[1],
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-1] == "claims=2 rejected=2"
        assert "G4: 1 training seed" in done.stdout

    def test_show_and_status_of_a_campaign(self, tmp_path, monkeypatch, capsys):
        import autoresearch.__main__ as command

        proposer = toys.transcript(tmp_path / "t.jsonl", {"skill": 0.7})
        gates = {"alpha": 0.9, "guard_alpha": 0.5, "seed_units": 10}
        budgets = {"generations": 1}
        config = toys.config(tmp_path, proposer=proposer, budgets=budgets, gates=gates)
        toys.run(config)
        monkeypatch.setattr(command, "load", lambda words, own=(): (config, {}))
        command.main(["status"])
        assert "promoted=g001_c01" in capsys.readouterr().out.splitlines()[-1]
        command.main(["show", "g001_c01"])
        shown = capsys.readouterr().out
        assert "proposed" in shown and "promoted" in shown and "G4" in shown
        command.main(["verify"])
        assert capsys.readouterr().out.splitlines()[-1].endswith("verified=true")
        with pytest.raises(UserError, match="run_999"):
            command.main(["show", "run_999"])
        monkeypatch.undo()
        place = f"directory={tmp_path / 'toy'}"  # of which conf/ knows nothing
        for words in (["status"], ["verify"], ["show", "g001_c01"]):
            command.main([*words, place])
        command.main(["keep", place, f"into={tmp_path / 'kept'}"])
        command.main(["verify", f"directory={tmp_path / 'kept' / 'toy'}"])
        assert capsys.readouterr().out.splitlines()[-1].endswith("verified=true")
        with pytest.raises(ConfigError, match="campaign=control_49k has no place"):
            command.main(["status", place, "campaign=control_49k"])
        with pytest.raises(ConfigError, match="seed is given twice"):
            load(["campaign=control_49k", "seed=1", "seed=2"])
