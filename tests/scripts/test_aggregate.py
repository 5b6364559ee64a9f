"""Finished runs are averaged over seeds and kept, and refused where they do not belong together."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

from common import cli
from common.errors import UserError
from common.files import read_json, sha256_file, write_json
from common.statistics import bounded_interval
from experiments.report.model_card import training_command
from experiments.training.averages import averaged, best_run, common_curve, over_tracks
from experiments.training.finished import FinishedRun, find_runs
from scripts.aggregate import DESCRIPTION, Settings
from tests.commands import TINY, command, last_line

SCRIPT = "scripts/aggregate.py"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two tiny finished runs, of seeds 1 and 2."""
    where = tmp_path_factory.mktemp("seeds")
    small = ("total_timesteps=256", "evaluation.every=128", "evaluation.background=false")
    for seed in (1, 2):
        command("train_ppo.py", *TINY, *small, f"seed={seed}", f"name=./s{seed}", cwd=where)
    return where / "runs"


@pytest.fixture
def copies(runs, tmp_path):
    """The same runs, to be damaged."""
    shutil.copytree(runs, tmp_path / "copies")
    return tmp_path / "copies"


def edit(path, change):
    content = read_json(path)
    change(content)
    write_json(path, content)


def test_seeds_become_one_record(runs, tmp_path):
    done = command(
        SCRIPT, f"runs={runs}", "name=both", "record=true", "checkpoint=driver", f"into={tmp_path}",
        cwd=tmp_path,
    )  # fmt: skip
    record = read_json(tmp_path / "records" / "both.json")
    judged = [read_json(runs / name / "eval.json") for name in ("s1", "s2")]
    means = [one["summary"]["progress"]["mean"] for one in judged]
    assert record["metrics"]["progress"] == bounded_interval(means, -1, 1).to_dict()
    assert record["metrics"]["native_return_min"] == min(
        row["native_return"] for one in judged for row in one["rows"]
    )
    assert record["settings"]["seeds"] == [3, 4]
    assert record["command"].startswith("python train_ppo.py --multirun ")
    assert record["command"].endswith("seed=1,2")
    assert [row["seed"] for row in record["details"]["seeds"]] == [1, 2]
    assert record["details"]["seeds"][1]["tracks"]["native_return"] == [
        row["native_return"] for row in judged[1]["rows"]
    ]
    assert record["details"]["curve"]["ticks"] == [128, 256]
    assert (tmp_path / "records" / "both.png").stat().st_size > 5000
    # Nothing says where the runs lay.
    assert str(runs.parent) not in json.dumps(record)

    best = record["details"]["best_seed"]["seed"]
    kept = tmp_path / "checkpoints" / "driver.pt"
    assert kept.read_bytes() == (runs / f"s{best}" / "checkpoints" / "best.pt").read_bytes()
    card = kept.with_suffix(".md").read_text()
    assert sha256_file(kept) == record["details"]["sha256"] and sha256_file(kept) in card
    assert f"seed={best}`" in card and "best of 2 by validation" in card
    assert str(runs.parent) not in card
    line = last_line(done)
    assert line["seeds"] == "2" and float(line["progress"]) == pytest.approx(np.mean(means), 1e-4)
    assert "95% low, over tracks (seeds averaged)" in done.stdout


def test_one_run_has_its_intervals_over_tracks(runs, tmp_path):
    command(
        SCRIPT, f"runs={runs}/s2", "name=one", "record=true", f"into={tmp_path}",
        cwd=tmp_path,
    )  # fmt: skip
    record = read_json(tmp_path / "records" / "one.json")
    summary = read_json(runs / "s2" / "eval.json")["summary"]
    for name in ("progress", "finished", "off_track_rate", "native_return"):
        assert record["metrics"][name] == summary[name]
    assert not (tmp_path / "checkpoints").exists()


def test_nothing_is_written_unless_asked(runs, tmp_path):
    command(SCRIPT, f"runs={runs}/s*", cwd=tmp_path)
    assert not list(tmp_path.iterdir())


def test_further_evaluations_are_kept_beside(runs, tmp_path):
    evaluated = command(
        "scripts/evaluate.py", f"checkpoint={runs}/s1", "env=carracing", "seeds=5", "name=./real",
        cwd=tmp_path,
    )  # fmt: skip
    assert last_line(evaluated)["eval"] == "runs/real/eval.json"
    command(
        SCRIPT, f"runs={runs}/s1", "evaluations=runs/real", "name=one", "record=true",
        "checkpoint=driver", f"into={tmp_path}", cwd=tmp_path,
    )  # fmt: skip
    (kept,) = read_json(tmp_path / "records" / "one.json")["details"]["evaluations"]
    assert kept["seed"] == 1 and kept["tracks"] == [5] and kept["settings"]["env"] == "carracing"
    card = (tmp_path / "checkpoints" / "driver.md").read_text()
    assert "test tracks 5-5, our engine, preset `carracing`" in card
    done = command(
        SCRIPT, f"runs={runs}/s2", "evaluations=runs/real", cwd=tmp_path, expect=2
    )  # fmt: skip
    assert "another policy" in done.stderr


def _other_clip(path):
    text = (path / "config.yaml").read_text()
    assert "clip: 0.2\n" in text
    (path / "config.yaml").write_text(text.replace("  clip: 0.2\n", "  clip: 0.3\n"))


def _other_code(path):
    edit(path / "manifest.json", lambda content: content["code"].update(sha256="f" * 64))


def _other_evaluator(path):
    edit(path / "eval.json", lambda content: content.update(evaluator="f" * 64))


def _other_tracks(path):
    edit(path / "eval.json", lambda content: content["rows"][0].update(seed=7))


@pytest.mark.parametrize(
    ("damage", "message"),
    [(_other_clip, "ppo.clip: 0.2 (s1), 0.3 (s2)"), (_other_code, "code: ")],
)
def test_runs_differ_in_their_seed_only(copies, tmp_path, damage, message):
    damage(copies / "s2")
    done = command(SCRIPT, f"runs={copies}", cwd=tmp_path, expect=2)
    key = message.partition(":")[0]
    assert message in done.stderr and f"allow={key}" in done.stderr
    command(SCRIPT, f"runs={copies}", f"allow={key}", cwd=tmp_path)


@pytest.mark.parametrize(
    ("damage", "what"), [(_other_evaluator, "evaluator"), (_other_tracks, "tracks")]
)
def test_what_was_measured_otherwise_is_never_averaged(copies, tmp_path, damage, what):
    damage(copies / "s2")
    done = command(SCRIPT, f"runs={copies}", f"allow={what}", cwd=tmp_path, expect=2)
    assert f"measured in different ways, {what}" in done.stderr


def test_the_same_seed_twice_is_no_second_opinion(copies, tmp_path):
    shutil.copytree(copies / "s1", copies / "again")
    done = command(SCRIPT, f"runs={copies}", cwd=tmp_path, expect=2)
    assert "seed 1 was trained more than once" in done.stderr


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda run: (run / "result.json").unlink(), "not finished, no result.json"),
        (lambda run: (run / "eval.json").write_text("{}"), "eval.json is damaged: no evaluator"),
        (lambda run: (run / "eval.json").write_text("{"), "eval.json is not valid JSON"),
        (lambda run: shutil.rmtree(run), "no run directory there"),
        (
            lambda run: edit(run / "eval.json", lambda e: e["summary"]["progress"].update(mean=1)),
            "has been changed: its summary does not agree with its rows",
        ),
        (lambda run: edit(run / "eval.json", lambda e: e["rows"].pop()), "has been changed"),
        (
            lambda run: edit(run / "eval.json", lambda e: e.update(rows=[])),
            "rows cannot be summarised",
        ),
        (
            lambda run: edit(run / "result.json", lambda e: e.update(ticks=128)),
            "it was resumed and has trained to 256",
        ),
    ],
)
def test_unfinished_and_damaged_runs_are_named(copies, tmp_path, damage, message):
    damage(copies / "s2")
    done = command(SCRIPT, f"runs={copies}/s1,{copies}/s2", cwd=tmp_path, expect=2)
    assert message in done.stderr and "s2" in done.stderr and "Traceback" not in done.stderr


def test_an_extended_run_is_another_experiment(copies, tmp_path):
    for name in ("s1", "s2"):  # even where all of them were extended alike
        run = f"resume={copies / name}"
        command("train_ppo.py", run, "total_timesteps=384", "video=false", cwd=tmp_path)
    assert read_json(copies / "s1" / "result.json")["ticks"] == 384
    done = command(SCRIPT, f"runs={copies}", cwd=tmp_path, expect=2)
    assert "total_timesteps: changed in s2" in done.stderr
    command(
        SCRIPT, f"runs={copies}", "allow=total_timesteps", "name=x", "record=true",
        f"into={tmp_path}/e", cwd=tmp_path,
    )  # fmt: skip
    record = read_json(tmp_path / "e" / "records" / "x.json")
    assert record["details"]["seeds"][0]["changed"] == {"total_timesteps": 384}
    shrunk = command("train_ppo.py", run, "total_timesteps=128", cwd=tmp_path, expect=2)
    assert "can only grow, it has 384" in shrunk.stderr


def test_a_run_by_two_versions_of_the_code_is_no_single_experiment(copies, tmp_path):
    note = {"created": "", "code": {"commit": None, "clean": None, "sha256": "f" * 64}}
    for name in ("s1", "s2"):
        edit(copies / name / "manifest.json", lambda m: m.update(resumes=[note | {"changed": {}}]))
    done = command(SCRIPT, f"runs={copies}", cwd=tmp_path, expect=2)
    assert "allow=code" in done.stderr
    command(SCRIPT, f"runs={copies}", "allow=code", cwd=tmp_path)


def test_the_best_is_chosen_among_scores_that_can_be_compared(runs):
    pair = [FinishedRun.open(path) for path in find_runs(str(runs))]
    evaluation = pair[1].config["evaluation"] | {"metric": "progress"}
    other = dataclasses.replace(pair[1], config=pair[1].config | {"evaluation": evaluation})
    with pytest.raises(UserError, match="validated differently"):
        best_run([pair[0], other])


def test_a_command_repeats_one_job_of_a_sweep(runs):
    run = FinishedRun.open(find_runs(str(runs))[0])
    assert training_command([run]).endswith("seed=1") and "name=" not in training_command([run])
    swept = ["ppo.gamma=0.97", "seed=1", "name=x"]
    job = dataclasses.replace(run, manifest=run.manifest | {"overrides": swept})
    assert training_command([job]) == "python train_ppo.py ppo.gamma=0.97 seed=1"
    spread = dataclasses.replace(job, config=job.config | {"processes": 2})
    assert training_command([spread]).startswith("torchrun --nproc-per-node 2 train_ppo.py")


def test_a_checkpoint_that_changed_since_is_not_kept(copies, tmp_path):
    best = copies / "s1" / "checkpoints" / "best.pt"
    best.write_bytes(best.read_bytes() + b"\0")
    done = command(
        SCRIPT, f"runs={copies}/s1", "name=x", "record=true", "checkpoint=x", f"into={tmp_path}/e",
        cwd=tmp_path, expect=2,
    )  # fmt: skip
    assert "changed since" in done.stderr and not (tmp_path / "e").exists()


def test_test_tracks_choose_nothing(runs):
    first, second = (FinishedRun.open(path) for path in find_runs(str(runs)))
    assert first.validation_score is not None

    def scored(run, validation, test):
        judged = json.loads(json.dumps(run.judged))
        judged["about"]["validation"]["native_return"]["mean"] = validation
        judged["summary"]["native_return"]["mean"] = test
        return dataclasses.replace(run, judged=judged)

    assert best_run([scored(first, 900, 100), scored(second, 800, 999)]).seed == 1
    unvalidated = dataclasses.replace(first, judged=first.judged | {"about": {}})
    assert best_run([unvalidated]).seed == 1
    with pytest.raises(UserError, match="must not be chosen by test tracks"):
        best_run([unvalidated, second])


def test_seeds_and_tracks_as_units(runs):
    """Lap times of tracks that nobody finished are missing, not zero."""
    pair = [FinishedRun.open(path) for path in find_runs(str(runs))]
    times = [[20.0, None], [24.0, None]]
    for run, laps in zip(pair, times, strict=True):
        for row, lap in zip(run.judged["rows"], laps, strict=True):
            row["lap_time"] = lap
        run.judged["summary"].pop("lap_time", None)
    pair[0].judged["summary"]["lap_time"] = {"mean": 20.0, "low": None, "high": None, "n": 1}
    assert over_tracks(pair)["lap_time"] == bounded_interval([22.0]).to_dict()
    assert averaged(pair)["lap_time"]["n"] == 1


def test_curves_meet_on_one_grid():
    def curve(ticks, progress):
        columns = ("seconds", "episode/progress", "episode/off_track_rate", "validation/progress")
        columns += ("validation/native_return", "validation/off_track_rate")
        return {"ticks": ticks} | {name: list(progress) for name in columns}

    first = curve([100, 200, 300], [0.0, 0.2, 0.4])
    second = curve([110, 210, 290, 400], [None, 0.22, 0.38, 0.6])
    together = common_curve([first, second])
    assert together["ticks"] == [110, 200, 300]
    assert together["validation/progress"]["mean"][0] is None  # no value yet in one of them
    assert together["validation/progress"]["mean"][1] is None  # nor between it and the next
    assert together["validation/progress"]["mean"][2] == pytest.approx((0.4 + 0.4) / 2, abs=1e-9)
    uneven = curve([100, 290, 300], [0.0, 0.2, 0.1])
    assert common_curve([uneven])["validation/progress"]["mean"] == [0.0, 0.2, 0.1]  # peak and all
    alone = common_curve([first])
    assert alone["validation/progress"]["mean"] == [0.0, 0.2, 0.4]
    assert alone["validation/progress"]["low"] == [None] * 3
    assert common_curve([curve([], [])]) == {}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["name=../drive"], "name has only"),
        (["name=/tmp/drive"], "name has only"),
        (["record=true"], "name has only"),
        (["name=drive", "record=true", "checkpoint=../../race"], "checkpoint has only"),
        (["name=drive", "record=true", "checkpoint=Race.pt"], "checkpoint has only"),
        (["name=drive", "checkpoint=race"], "record=true"),
    ],
)
def test_names_that_leave_their_directory_are_refused(arguments, message):
    with pytest.raises(UserError, match=message):
        cli.parse(Settings, DESCRIPTION, ["runs=runs/x", *arguments])
