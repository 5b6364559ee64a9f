"""The report says what the records say, with seeds and tracks told apart."""

import shutil

import pytest
import torch

from common.errors import UserError
from common.files import sha256_file
from common.markdown import tables
from common.records import RECORDS, write_record
from common.runs import ROOT
from experiments.report.document import report
from experiments.report.facts import facts, filled
from experiments.report.world_model_card import world_model_card
from scripts.report import documents
from tests.experiments.report.small_records import (
    PLACE,
    write_ablations,
    write_rung,
    write_speeds,
    write_training,
)


def test_seeds_have_rows_and_the_best_is_named(tmp_path):
    write_training(tmp_path, "carracing")
    write_training(tmp_path, "drive", seeds=1, env="race")
    text = report(tmp_path)
    assert "| carracing (gymnasium_carracing, 3 tracks, 3 seeds) | 300 / 75 |" in text
    assert "| carracing, seed 2 | 300 / 75 | 60 | 816" in text
    assert "| carracing, over tracks |" in text
    assert "drive (race, 3 tracks)" in text and "drive, seed 1" not in text
    assert "best seed 2 (by validation native_return, not by any test track)" in text
    text = facts(tmp_path)
    assert "(10th percentile 700.5) on 3 tracks of the real CarRacing-v3, 3 seeds, after" in text
    assert "after 1.0 minutes of training each on 1 of 2 cores" in text
    assert "on 3 tracks, after 1.0 minutes of training on 1 of 2 cores" in text


def test_budgets_stand_beside_the_earlier_record_and_not_among_the_drivers(tmp_path):
    write_training(tmp_path, "budget_49k")
    write_training(tmp_path, "budget_49k_ticks")
    text = report(tmp_path)
    assert "## Driving" not in text and facts(tmp_path) == ""
    section = text.partition("## With the earlier record's budget")[2]
    assert "| 0.5551 | 0.036 |" in section and "| 0.7376 | 0.268 |" in section
    assert "budget_49k (" in section and "budget_49k_ticks (" in section


def test_many_seeds_stand_beside_the_few(tmp_path):
    write_training(tmp_path, "budget_49k", seeds=5, env="race")
    write_record(
        "calibration_control_49k", command="python -m autoresearch calibrate", provenance=PLACE,
        settings={"primary": "progress", "budget": 300}, metrics={"runs": 24, "units": 3},
        details={"rows": [], "means": [0.4, 0.6, 0.8] * 8}, directory=tmp_path,
    )  # fmt: skip
    section = report(tmp_path).partition("## With the earlier record's budget")[2]
    row = next(line for line in section.splitlines() if line.startswith("| calibration_control"))
    assert "24 seeds, last weights" in row and "| 0.6 [0.5" in row
    assert "Use the second number to predict one more training run" in section
    assert "progress 0.6 [0.5" in facts(tmp_path) and "over 24 training seeds" in facts(tmp_path)


def test_code_with_uncommitted_changes_is_marked(tmp_path):
    write_speeds(tmp_path)
    assert "†" not in report(tmp_path)
    dirty = PLACE | {"code": PLACE["code"] | {"clean": False}}
    write_record(
        "replay_speed", command="x", settings={}, metrics={}, provenance=dirty, directory=tmp_path
    )
    text = report(tmp_path)
    assert f"code {'c' * 10}†, a processor" in text and "(1 of 3 records)" in text


def test_ablations_and_speeds(tmp_path):
    write_ablations(tmp_path)
    write_speeds(tmp_path)
    text = report(tmp_path)
    assert "| the colour | 0.725 [" in text and "| -0.125 [" in text
    assert "| ratio | 12 |" in text
    assert "| speed: sides | steps_per_second |\n|---|---|\n| ours | 1800 |" in text
    assert "speed: rounds" not in text  # single rounds stay in the record


@pytest.mark.parametrize(
    ("ours", "theirs", "sentence"),
    [
        (87.0, None, "Ours took 87 s of training to reach a progress of 0.5. Stable-Baselines3 was "
         "stopped after 11 times as long; it had reached -0.02."),
        (87.0, 1740.0, "reach a progress of 0.5; Stable-Baselines3 took 20 times as long."),
        (None, None, "Ours did not reach a progress of 0.5 in 300,000 ticks."),
    ],
)  # fmt: skip
def test_who_learned_how_fast_is_said(tmp_path, ours, theirs, sentence):
    point = {"seconds": 957.0, "ticks": 32_768, "progress": -0.02, "native_return": -78.0}
    write_record(
        "ppo_learning", command="python scripts/bench_ppo.py", provenance=PLACE, directory=tmp_path,
        settings={"target_progress": 0.5, "budget": 300_000, "validation_tracks": 20},
        metrics={"learning_seconds": ours, "learning_seconds_sb3": theirs,
                 "learning_ratio": theirs and theirs / ours, "learning_at_least": 11.0,
                 "progress_sb3": -0.02},
        details={"learning": {"curves": {"ours": [], "sb3": [point]}}},
    )  # fmt: skip
    section = report(tmp_path).partition("## Time of learning")[2]
    assert sentence in section and "| sb3 | 957 | 32,768 | -0.02 | -78 |" in section


def test_rungs_stand_in_the_order_of_the_ladder_whatever_their_verdict(tmp_path):
    write_rung(tmp_path, "P5", parent="P4")
    write_rung(tmp_path, "E1")
    section = report(tmp_path).partition("## World model: the ladder")[2]
    assert section.index("| E1 | longer windows |") < section.index("| P5 | longer windows |")
    assert "| ssim of sharp_turn: better than P4 | -0.02 [" in section and "| refuted |" in section
    assert "progress_delta .071" in section and "; 2 seeds, 250 updates" in section
    assert "E3 to P5: the SSIM of sharp_turn changes by -0.02 [" in section
    (tmp_path / "ladder.md").write_text("### Notes\n\n- it was late\n")
    assert "### Notes\n\n- it was late" in report(tmp_path)


def test_tables_take_any_depth_and_missing_cells():
    found = tables({"a": {"x": {"p": 1.0}, "y": {"q": None, "p": "text"}}, "b": {"n": True}})
    assert found == [
        "| a | p | q |\n|---|---|---|\n| x | 1 |  |\n| y | text |  |",
        "| b |  |\n|---|---|\n| n | yes |",
    ]


def test_marked_parts_are_filled_and_broken_marks_refused():
    text = "a <!-- facts:begin -->old<!-- facts:end --> b"
    once = filled(text, "facts", "new", "README.md")
    assert once == "a <!-- facts:begin -->\nnew\n<!-- facts:end --> b"
    assert filled(once, "facts", "new", "README.md") == once
    begin, end = "<!-- facts:begin -->", "<!-- facts:end -->"
    for broken in ("", begin, end + begin, begin + end + begin + end):
        with pytest.raises(UserError, match=r"README\.md needs one <!-- facts:begin -->"):
            filled(broken, "facts", "new", "README.md")


def test_a_world_model_has_a_card_only_with_records_of_this_very_file(tmp_path):
    checkpoint = ROOT / "experiments" / "checkpoints" / "P5.pt"
    assert world_model_card(checkpoint, tmp_path) is None
    for path in RECORDS.glob("*_p*.json"):
        shutil.copy(path, tmp_path)
    for path in RECORDS.glob("probe_*.json"):
        shutil.copy(path, tmp_path)
    text = world_model_card(checkpoint, tmp_path)
    assert "It fails the probe recovery" in text and "| faithfulness | 0.85" in text
    assert sha256_file(checkpoint) in text
    other = tmp_path / "P5.pt"
    content = torch.load(checkpoint, weights_only=True)
    content["about"]["seed"] = 7
    torch.save(content, other)
    with pytest.raises(UserError, match=r"judged another P5.pt: python -m probes all"):
        world_model_card(other, tmp_path)


def test_the_documents_of_a_tree(tmp_path):
    (tmp_path / "README.md").write_text("<!-- facts:begin --><!-- facts:end -->")
    records = tmp_path / "records"
    records.mkdir()
    assert {path.name for path in documents(tmp_path, records, tmp_path / "none")} == {
        "README.md",
        "REPORT.md",
    }
    prose = tmp_path / "docs" / "ppo.md"
    prose.parent.mkdir()
    prose.write_text("Why: <!-- ablations:begin --><!-- ablations:end --> so.")
    assert "Not run yet" in documents(tmp_path, records, tmp_path / "none")[prose]
    write_ablations(records)
    assert "| the colour | 0.725 [" in documents(tmp_path, records, tmp_path / "none")[prose]
    prose.write_text("no marks, nothing to fill")
    assert prose not in documents(tmp_path, records, tmp_path / "none")
