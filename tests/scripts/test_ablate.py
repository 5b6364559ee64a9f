"""The ablation study runs, compares by seed, survives kills and failures, and never mixes runs."""

import fcntl
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from common.errors import ConfigError, UserError
from common.files import read_json
from common.runs import Run
from common.statistics import bounded_interval
from experiments.training.ablations import BASE, VARIANTS
from experiments.training.finished import FinishedRun
from experiments.training.study import Task, composed, run_all
from scripts.ablate import MEASURES, compare
from tests.commands import command, last_line

SMALL = ("ppo.num_envs=4", "ppo.num_steps=8", "ppo.minibatches=2", "ppo.epochs=1",
         "ppo.network.channels=[4,8,8]", "ppo.network.hidden=[16]", "evaluation.test_seeds=3-4",
         "env.track_pool=4", "env.size=64")  # fmt: skip
TICKS = 256
OVERRIDES = (*BASE, f"total_timesteps={TICKS}", *SMALL)
ARGUMENTS = ("variants=repeat_8", "seeds=2", f"total_timesteps={TICKS}", "jobs=1",
             "run_root=study", "records=records",
             "overrides=[" + ",".join(f"'{one}'" for one in SMALL) + "]")  # fmt: skip


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A finished study of one variant with one seed, and what it printed."""
    where = tmp_path_factory.mktemp("ablate")
    done = command("scripts/ablate.py", *ARGUMENTS, "record=true", cwd=where)
    return where, done


def task(root, variant="repeat_8", seed=2, overrides=OVERRIDES):
    return Task.of(root, variant, seed, (*overrides, *VARIANTS[variant].overrides))


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_composes_and_changes_something(name):
    variant = composed((*BASE, *VARIANTS[name].overrides))
    assert (variant == composed(BASE)) == (name == "base")


@pytest.mark.slow
def test_a_study_compares_with_its_base(study):
    where, done = study
    assert last_line(done)["runs"] == "2"
    record = read_json(where / "records" / "ablations.json")
    assert (where / "records" / "ablations.png").stat().st_size > 5000
    found = record["details"]["variants"]
    assert list(found) == ["base", "repeat_8"]
    assert found["repeat_8"]["seeds"][0]["decisions"] == TICKS // 8
    assert found["base"]["seeds"][0]["decisions"] == TICKS // 4
    for name in ("base", "repeat_8"):
        summary = read_json(where / "study" / f"{name}-s2" / "eval.json")["summary"]
        assert record["metrics"][f"{name}/progress"]["mean"] == summary["progress"]["mean"]
    difference = record["metrics"]["repeat_8/progress_difference"]
    assert difference["n"] == 1 and difference["low"] is None
    assert "study" not in record["command"]


def test_differences_are_paired_by_seed():
    def judged(seed, value):
        summary = {measure: {"mean": value} for measure in MEASURES}
        return FinishedRun(Path(), {"seed": seed}, {}, {"summary": summary}, {}, {})

    runs = {
        "base": [judged(1, 0.2), judged(2, 0.8), judged(3, 0.5)],
        "colour": [judged(3, 0.4), judged(1, 0.3)],
    }
    found = compare(runs)
    assert found["base"]["progress"] == bounded_interval([0.2, 0.8, 0.5], -1, 1)
    assert "progress_difference" not in found["base"]
    difference = found["colour"]["progress_difference"]
    assert difference.n == 2 and difference.mean == pytest.approx((0.4 - 0.5 + 0.3 - 0.2) / 2)


@pytest.mark.slow
def test_what_is_finished_is_not_run_again_and_what_is_not_is_resumed(study, tmp_path):
    where, _ = study
    shutil.copytree(where / "study", tmp_path / "study")
    for name in ("result.json", "eval.json"):  # as if killed before its evaluation
        (tmp_path / "study" / "repeat_8-s2" / name).unlink()
    done = command("scripts/ablate.py", *ARGUMENTS, cwd=tmp_path)
    assert done.stdout.count("already finished") == 1 and "repeat_8-s2: resumed" in done.stdout
    again, first = (read_json(at / "study/repeat_8-s2/eval.json") for at in (tmp_path, where))
    assert again["rows"] == first["rows"]
    assert not (tmp_path / "records").exists()


@pytest.mark.slow
def test_a_failure_stops_no_other_run(study, tmp_path):
    where, _ = study
    shutil.copytree(where / "study", tmp_path / "study")
    broken = tmp_path / "study" / "repeat_8-s2"
    (broken / "result.json").unlink()
    (broken / "checkpoints" / "last.pt").write_bytes(b"")
    done = command("scripts/ablate.py", *ARGUMENTS, "record=true", cwd=tmp_path, expect=2)
    assert "repeat_8-s2: FAILED (2)" in done.stdout and "base-s2: already" in done.stdout
    assert "less base's" in done.stdout  # the table of the others
    assert "1 of 2 runs failed; nothing is recorded" in done.stderr and "last.pt" in done.stderr
    assert not (tmp_path / "records").exists()


@pytest.mark.slow
def test_states_of_a_run(study, tmp_path):
    where, _ = study
    shutil.copytree(where / "study", tmp_path / "study")
    run = task(tmp_path / "study")
    assert run.state() == "finished"
    with Run.open(run.path).lock():
        assert run.state() == "busy"
    (run.path / "result.json").unlink()
    assert run.state() == "unfinished"
    other = task(tmp_path / "study", overrides=(*OVERRIDES, "ppo.clip=0.3"))
    with pytest.raises(UserError, match=r"ppo\.clip=0\.2 \(now 0\.3\)"):
        other.state()


def test_a_directory_that_its_process_did_not_finish_making_is_made_anew(tmp_path):
    run = task(tmp_path)
    assert run.state() == "absent"
    (run.path / "checkpoints").mkdir(parents=True)
    (run.path / "config.yaml").write_text("seed: 1\n")
    assert run.state() == "absent" and not run.path.exists()
    run.path.mkdir()
    (run.path / "thesis.tex").write_text("years of work")
    with pytest.raises(UserError, match=r"it holds thesis\.tex"):
        run.state()
    said = []
    assert list(run_all([run], 1, said.append)) == ["repeat_8-s2"]
    assert (run.path / "thesis.tex").is_file() and "FAILED" in said[0]


class Sleeper(Task):
    """A run whose process only writes its result, after a moment; seed 3 fails."""

    def state(self):
        return "finished" if (self.path / "result.json").is_file() else "absent"

    def start(self, state):
        work = "sys.exit('no luck')" if self.seed == 3 else "(p / 'result.json').touch()"
        code = f"import pathlib, sys, time; p = pathlib.Path({str(self.path)!r}); p.mkdir()\n"
        code += f"time.sleep(0.5); {work}"
        self.log.parent.mkdir(exist_ok=True)
        with open(self.log, "wb") as log:
            return subprocess.Popen([sys.executable, "-S", "-c", code], stderr=log)


def test_as_many_run_at_a_time_as_jobs_says(tmp_path):
    tasks = [Sleeper("base", seed, tmp_path / f"base-s{seed}", (), {}) for seed in range(1, 6)]
    said = []
    assert run_all(tasks, 2, said.append) == {"base-s3": "no luck"}
    running, most = set(), 0
    for name, _, what in (line.partition(": ") for line in said):
        (running.add if what == "started" else running.discard)(name)
        most = max(most, len(running))
    assert most == 2 and not running
    assert said[-1].endswith("5 of 5")
    assert run_all([tasks[0]], 2, said.append) == {} and said[-1] == "base-s1: already finished"


def test_two_studies_do_not_share_a_directory(tmp_path):
    (tmp_path / "study").mkdir()
    with open(tmp_path / "study" / ".study.lock", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = command("scripts/ablate.py", *ARGUMENTS, cwd=tmp_path, expect=2)
    assert "another process is running this study" in done.stderr


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("variants=repeat_9", "not 'repeat_9'"),
        ("variants=colour,colour", "names one twice"),
        ("seeds=3-1", "runs backwards"),
        ("jobs=-1", "jobs is 0 to 256"),
        ("overrides=[ppo.lerning_rate=1]", "did you mean 'ppo.learning_rate'"),
        ("overrides=[seed=4]", "overrides has seed, which the study sets itself"),
        ("allow=evaluator", "allow is code"),
    ],
)
def test_mistakes_are_explained_before_anything_runs(tmp_path, argument, message):
    done = command("scripts/ablate.py", argument, cwd=tmp_path, expect=2)
    assert done.stderr.startswith("error: ") and message in done.stderr
    assert not list(tmp_path.iterdir())


def test_unknown_settings_do_not_compose():
    with pytest.raises(ConfigError, match="reward"):
        composed(("reward=fame",))
