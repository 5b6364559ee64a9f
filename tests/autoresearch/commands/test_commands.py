"""The commands: settings, mistakes, and looking at campaigns."""

import json
import subprocess
import sys

import pytest

from autoresearch.__main__ import main
from autoresearch.commands import settings
from autoresearch.commands.settings import campaigns, load
from autoresearch.config import (
    Budgets,
    CampaignConfig,
    Commands,
    ExecutorConfig,
    Final,
    Gates,
    Reading,
)
from common.errors import ConfigError, UserError
from common.files import to_plain
from common.keys import field_docs, field_types
from common.runs import ROOT
from tests.autoresearch import toys


class TestCommand:
    def test_every_shipped_campaign_is_valid(self):
        assert campaigns()
        for name in campaigns():
            config, _ = load([f"campaign={name}"])
            assert config.name == name
            alpha, seeds = config.gates.claim(config.budgets.generations)
            assert 0 < alpha < 0.05 and seeds >= 6

    def test_settings_follow_as_name_value(self):
        config, options = load(
            ["campaign=control_49k", "proposer.kind=random", "executor.jobs=1", "runs=3"], ("runs",)
        )
        assert config.proposer.kind == "random" and config.executor.jobs == 1
        assert options == {"runs": "3"}

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (["run"], "name a campaign"),
            (["run", "campaign=contrl_49k"], "did you mean 'control_49k'"),
            (["run", "campaign=control_49k", "proposer.knd=random"], "did you mean"),
            (["run", "campaign=control_49k", "budget=0"], "budget is at least 1"),
            (
                ["run", "campaign=control_49k", "gates.alpha=2"],
                "gates.alpha is above 0 and below 1",
            ),
            (["run", "control_49k"], "write name=value"),
            (["rn"], "did you mean 'run'"),
            (["show", "campaign=control_49k"], "show takes one name"),
            (["calibrate", "campaign=control_49k", "runs=many"], "not a whole number"),
            (["calibrate", "campaign=control_49k", "effects=big"], "effects are numbers"),
            (["calibrate", "campaign=control_49k", "effects=0,nan"], "effects are finite"),
            (["final", "campaign=control_49k", "root=nowhere"], "no such ledger"),
            (["status", "campaign=control_49k", "root=nowhere"], "no such ledger"),
            (["resume", "campaign=control_49k"], "no such ledger; begin the campaign with"),
            (["verify", "directory=nowhere"], "directory= names a folder that holds one"),
        ],
    )
    def test_mistakes_are_explained(self, tmp_path, monkeypatch, words, message):
        monkeypatch.chdir(tmp_path)
        with pytest.raises((UserError, ConfigError), match=message):
            main(words)
        assert not list(tmp_path.iterdir())

    def test_a_broken_file_is_told(self, tmp_path, monkeypatch):
        (tmp_path / "broken.yaml").write_text("budget: [1\n")
        monkeypatch.setattr(settings, "CONFIGURATIONS", tmp_path)
        with pytest.raises(ConfigError, match=r"broken\.yaml"):
            load(["campaign=broken"])

    def test_it_says_what_it_can_do_and_rejects_the_earlier_record(self):
        done = subprocess.run(
            [sys.executable, "-m", "autoresearch", "earlier"], capture_output=True, text=True,
            cwd=ROOT,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-1] == "claims=2 rejected=2"
        assert "G4: 1 training seed" in done.stdout

    def test_help_has_a_sentence_for_every_setting(self, capsys):
        main(["run", "--help"])
        text = capsys.readouterr().out
        assert "gates.win=60.0" in text and "budget=<required>" in text
        for group in (CampaignConfig, Commands, Reading, Gates, Budgets, Final, ExecutorConfig):
            assert set(field_types(group)) == set(field_docs(group)), group
        main(["run", "campaign=control_49k", "--help"])
        assert "budget=194000" in capsys.readouterr().out

    def test_show_and_status_of_a_campaign(self, tmp_path, monkeypatch, capsys):
        proposer = toys.transcript(tmp_path / "t.jsonl", {"skill": 0.7})
        gates = {"alpha": 0.9, "guard_alpha": 0.5, "seed_units": 10}
        budgets = {"generations": 1}
        config = toys.config(tmp_path, proposer=proposer, budgets=budgets, gates=gates)
        toys.run(config)
        (tmp_path / "conf").mkdir()
        (tmp_path / "conf" / "toy.yaml").write_text(json.dumps(to_plain(config)))
        monkeypatch.setattr(settings, "CONFIGURATIONS", tmp_path / "conf")
        main(["status", "campaign=toy"])
        assert "promoted=g001_c01" in capsys.readouterr().out.splitlines()[-1]
        main(["show", "g001_c01", "campaign=toy"])
        shown = capsys.readouterr().out
        assert "proposed" in shown and "promoted" in shown and "G4" in shown
        main(["verify", "campaign=toy"])
        assert capsys.readouterr().out.splitlines()[-1].endswith("verified=true")
        with pytest.raises(UserError, match="run_999"):
            main(["show", "run_999", "campaign=toy"])
        monkeypatch.undo()
        place = f"directory={tmp_path / 'toy'}"  # of which conf/ knows nothing
        for words in (["status"], ["verify"], ["show", "g001_c01"]):
            main([*words, place])
        main(["keep", place, f"into={tmp_path / 'kept'}"])
        main(["verify", f"directory={tmp_path / 'kept' / 'toy'}"])
        assert capsys.readouterr().out.splitlines()[-1].endswith("verified=true")
        with pytest.raises(ConfigError, match="campaign=control_49k has no place"):
            main(["status", place, "campaign=control_49k"])
        with pytest.raises(ConfigError, match="seed is given twice"):
            load(["campaign=control_49k", "seed=1", "seed=2"])


def test_final_of_a_directory_runs_there_wherever_it_was_moved(tmp_path, better, capsys):
    toys.run(better)
    moved = tmp_path / "elsewhere" / "toy"
    moved.parent.mkdir()
    (tmp_path / "toy").rename(moved)
    main(["final", f"directory={moved}"])
    assert "stopped='the gain held up'" in capsys.readouterr().out.splitlines()[-1]
    assert not (tmp_path / "toy").exists()
    main(["verify", f"directory={moved}"])
    moved.rename(moved.with_name("other"))
    with pytest.raises(UserError, match="holds the campaign toy"):
        main(["final", f"directory={moved.with_name('other')}"])


class TestCommittedCampaign:
    """Without a local run, commands that look at a campaign find the committed one, and say so."""

    @pytest.fixture(autouse=True)
    def elsewhere(self, tmp_path, monkeypatch):
        """No run of a campaign lies here."""
        monkeypatch.chdir(tmp_path)

    @pytest.mark.parametrize(
        ("words", "last"),
        [
            (["status", "campaign=control_49k"], "generations=4 candidates=12 promoted=none"),
            (["verify", "campaign=control_49k"], "rows=335 artifacts=87 decisions=59"),
            (["verify", "campaign=control_49k_random"], "rows=332 "),
            (["verify", "campaign=world_model"], "rows=61 "),
            (["show", "campaign=control_49k", "g001_c02"], "rows="),
            (["final", "campaign=control_49k"], "stopped='nothing was promoted"),
        ],
    )
    def test_is_found_named_and_left_as_it_is(self, tmp_path, capsys, words, last):
        directory = settings.CAMPAIGNS / words[1].partition("=")[2]
        before = {path: path.stat().st_mtime_ns for path in directory.rglob("*")}
        main(words)
        lines = capsys.readouterr().out.splitlines()
        place = f"experiments/campaigns/{directory.name}"
        assert lines[0] == f"no local run; using the committed campaign {place}"
        assert last in lines[-1]
        assert before == {path: path.stat().st_mtime_ns for path in directory.rglob("*")}
        assert not list(tmp_path.iterdir())

    def test_status_explains_equal_results_and_cuts_no_cell(self, capsys):
        main(["status", "campaign=control_49k"])
        shown = capsys.readouterr().out
        assert "The cars of g002_c01 and g002_c03 stand still on all of the first 50 units" in shown
        assert "…" not in shown and "ppo.network.log_std_final=-3.0" in shown

    def test_keep_needs_another_place(self):
        with pytest.raises(UserError, match="is kept already"):
            main(["keep", "campaign=control_49k"])

    def test_without_its_file_nothing_can_be_set(self):
        with pytest.raises(ConfigError, match=r"seed cannot be set"):
            main(["status", "campaign=control_49k_random", "seed=3"])

    def test_a_named_root_means_a_run_there(self):
        with pytest.raises(UserError, match=r"no such ledger; begin the campaign with"):
            main(["status", "campaign=control_49k", "root=nowhere"])
