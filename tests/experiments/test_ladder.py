"""The ladder: its rungs as configurations, what a verdict is, and which rungs a range names."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from common.errors import UserError
from common.files import sha256_file, to_plain, write_json
from common.runs import Run
from experiments.data.recipes import RECIPES
from experiments.report.kept import RUNGS
from experiments.rungs import keeping, training
from experiments.rungs.keeping import summary
from experiments.rungs.needs import check_needs
from experiments.rungs.settings import Settings, configuration, rungs
from experiments.rungs.verdicts import verdict
from probes import runs as probe_runs
from probes.clips import RULES
from replay import ShardWriter
from rssm.config import Observable, RungConfig
from tests.replay.counters import ATTRIBUTES, episode


def test_ranges_and_names():
    assert rungs("E1-P5") == ["E1", "E2", "E3", "P1", "P2", "P3", "P4", "P5"]
    assert rungs("2B, E3-P1") == ["E3", "P1", "2B"]
    with pytest.raises(UserError, match="'E9' is no rung"):
        rungs("E1-E9")
    with pytest.raises(UserError, match="runs backwards"):
        rungs("P5-E1")


@pytest.mark.parametrize("name", RUNGS)
def test_every_rung_names_its_parent_change_data_and_hypothesis(name):
    config = configuration(name, "laptop", ["seed=2"])
    rung = config.rung
    assert rung.name == name and rung.change and rung.hypothesis
    assert config.data.dataset in RECIPES
    assert config.name == f"ladder/laptop/{name}-s2"
    assert config.updates == rung.updates["laptop"]
    if name == "E1":
        assert rung.parent is None and rung.observable is None
    else:
        assert RUNGS.index(rung.parent) < RUNGS.index(name)
        assert rung.observable.probe in RULES
    if config.warm_start is not None:
        start = config.warm_start.split("/")[-3]
        assert start.endswith("-s2") and RUNGS.index(start[:-3]) < RUNGS.index(name)


def test_the_laptop_scale_keeps_its_budget():
    configs = [configuration(name, "laptop") for name in rungs("E1-P5")]
    frames = sum(c.updates * c.data.batch * c.data.length for c in configs)
    assert frames <= 5_000_000
    assert configs[-1].data.batch == 128 and configs[-1].data.passes == 8


def test_the_record_scale_has_the_records_sizes():
    config = configuration("P5", "record")
    assert (config.network.deter, config.network.stoch) == (512, 32)
    assert config.updates == config.rung.updates["record"]


def test_settings_are_checked_before_anything_is_trained():
    for changes, message in (
        ({"clips": 1}, "clips is at least 2"),
        ({"probes": []}, "probes is empty"),
        ({"record": True, "clips": 8}, "leave out overrides"),
        ({"record": True, "overrides": ["updates=3"]}, "leave out overrides"),
    ):
        with pytest.raises(ValueError, match=message):
            Settings(**changes)
    with pytest.raises(UserError, match="'' is no rung"):
        rungs("E1-")


def test_what_is_missing_is_named_with_the_commands_that_make_it(tmp_path):
    """All of it before anything is trained, in the order in which it has to be made."""
    settings = Settings(data_root=str(tmp_path), run_root=str(tmp_path / "runs"))
    with pytest.raises(UserError) as error:
        check_needs(["P3", "P5"], [1], settings)
    message, collect = str(error.value), "python scripts/collect_replay.py dataset="
    commands = [
        f"{collect}D3_diverse root={tmp_path} && ",
        f"{collect}D4_main factor=8 root={tmp_path} && ",
        f"{collect}PROBE root={tmp_path} && ",
        f"python -m experiments.ladder run=E3,P4 data_root={tmp_path} run_root={tmp_path / 'runs'}",
    ]
    places = [message.index(one) for one in commands]
    assert places == sorted(places) and "NOVEL" not in message
    splits = [("PROBE", "probe")]
    splits += [(name, split) for name in ("D3_diverse", "D4_main") for split in ("train", "val")]
    for dataset, split in splits:
        with ShardWriter(tmp_path, dataset, split, ATTRIBUTES) as writer:
            writer.add(episode(0, 4))
    with pytest.raises(UserError, match=r"the weights of E3: not there yet; first run python -m"):
        check_needs(["P3", "P4"], [1], settings)
    start = tmp_path / "runs" / "ladder" / "laptop" / "E3-s1" / "checkpoints" / "final.pt"
    start.parent.mkdir(parents=True)
    start.write_bytes(b"weights")
    check_needs(["P3", "P4", "P5"], [1], settings)


def test_results_by_other_settings_are_judged_again(tmp_path, monkeypatch):
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "final.pt").write_bytes(b"weights")
    asked = []

    def judge_by(probes, settings, memory):
        asked.append((list(probes), settings.clips))
        for probe in probes:
            about = {"checkpoint_sha256": sha256_file(settings.checkpoint)}
            about["asked"] = probe_runs.result_settings(settings)
            write_json(Path(settings.into) / f"{probe}.json", about)

    monkeypatch.setattr(probe_runs, "judge", judge_by)
    for clips in (4, 4, 64):
        training.judge(tmp_path, Settings(clips=clips, probes=["straight"]), {})
    assert asked == [(["straight"], 4), (["straight"], 64)]


def test_a_run_of_other_settings_does_not_pass_for_the_rung(tmp_path):
    settings = Settings(run_root=str(tmp_path))
    config = to_plain(configuration("E1", "laptop"))
    config["loss"]["telemetry"] = 5.0
    made = Run.create(tmp_path, "ladder/laptop/E1-s1", config, seeds={"root": 1})
    made.write_json("result.json", {})
    with pytest.raises(UserError, match=r"loss.telemetry 5.0 instead of 100.0"):
        training.train("E1", 1, settings)
    honest = Settings(run_root=str(tmp_path), overrides=["loss.telemetry=5"])
    assert training.train("E1", 1, honest) == made.path


def test_what_never_began_is_removed(tmp_path, monkeypatch):
    path = tmp_path / "ladder" / "laptop" / "E1-s1"
    path.mkdir(parents=True)
    monkeypatch.setattr(training.subprocess, "run", lambda *_: SimpleNamespace(returncode=0))
    with pytest.raises(UserError, match="another process is training"):
        training.train("E1", 1, Settings(run_root=str(tmp_path)))
    assert not path.exists()


def test_the_clock_counts_training_and_probes_over_seeds(tmp_path):
    runs = {1: tmp_path / "a", 2: tmp_path / "b"}
    for path in runs.values():
        write_json(path / "result.json", {"seconds": 100.0})
    judged = {"straight": {"seconds": 5.0}, "recovery": {"seconds": 7.0}}
    told = keeping.seconds_spent(runs, {1: judged, 2: judged})
    assert told == {"training": 200.0, "probes": 24.0}
    write_json(runs[2] / "result.json", {})  # from before there was a clock
    assert keeping.seconds_spent(runs, {1: judged, 2: judged}) is None


RUNG = RungConfig("B", "A", "c", "h", Observable("sharp_turn", "ssim", 1))


def result(values, clips="x"):
    return {"clips": {"hash": clips}, "per_clip": {"ssim": list(values)}}


def test_a_verdict_is_paired_by_clip():
    rng = np.random.default_rng(0)
    base = rng.normal(size=64)
    up = base + 0.01 + 0.01 * rng.normal(size=64)
    told = verdict(RUNG, {1: result(up)}, {1: result(base)})
    assert told["verdict"] == "confirmed" and told["change"]["low"] > 0
    assert verdict(RUNG, {1: result(base)}, {1: result(up)})["verdict"] == "refuted"
    other = base + 0.01 * rng.normal(size=64)
    assert verdict(RUNG, {1: result(other)}, {1: result(base)})["verdict"] == "inconclusive"
    two = {1: result(up), 2: result(base)}
    assert verdict(RUNG, two, {1: result(base), 2: result(base)})["seeds"] == 2


def test_a_verdict_needs_a_parent_with_the_same_clips():
    assert verdict(RUNG, {1: result([1, 2])}, {})["verdict"] == "inconclusive"
    with pytest.raises(UserError, match="different clips"):
        verdict(RUNG, {1: result([1, 2])}, {1: result([1, 2], clips="y")})
    assert verdict(RungConfig("E1"), {}, {}) == {"verdict": None}


def test_a_summary_takes_what_there_is():
    found = {
        "numbers": {
            "pictures": {m: {"model": {"mean": i}} for i, m in enumerate(("ssim", "psnr", "mse"))},
            "action_sensitivity": {"mean": 2.0},
            "telemetry": {"speed@15": {"model": {"corr": {"mean": 0.9}}}, "off": {"auc": 0.8}},
        }
    }
    numbers = summary({"faithfulness": found})
    assert numbers["faithfulness_psnr"] == 1 and numbers["corr_speed@15"] == 0.9
    assert numbers["auc_off"] == 0.8
