"""The commands end to end, on the real engine, as a user types them."""

import json
import re
import shutil
import subprocess
import sys

import pytest
import torch

from common.files import read_json, read_jsonl
from ppo.evaluate import load_policy
from tests.commands import ROOT, TINY, command, last_line


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished tiny run, made from another working directory."""
    where = tmp_path_factory.mktemp("work")
    done = command("train_ppo.py", "name=tiny", *TINY, cwd=where)
    return where / "runs" / "ppo" / "tiny", done


def test_a_run_leaves_everything_behind(run):
    path, done = run
    assert "device " in done.stdout
    numbers = last_line(done)
    assert numbers["ticks"] == "512" and numbers["decisions"] == "128"
    result = read_json(path / "eval.json")
    assert [row["seed"] for row in result["rows"]] == [3, 4]
    assert float(numbers["progress"]) == pytest.approx(result["summary"]["progress"]["mean"], 1e-4)
    assert result["evaluator"] == read_json(path / "manifest.json")["evaluator"]
    assert result["checkpoint"] == "checkpoints/best.pt"
    rows = read_jsonl(path / "metrics.jsonl")
    assert [row["ticks"] for row in rows if "ppo/entropy" in row] == [128, 256, 384, 512]
    assert [row["ticks"] for row in rows if "validation/progress" in row] == [256, 512]
    assert {"reward/progress", "reward/time"} <= rows[0].keys()
    assert not list(path.parents[2].glob("outputs"))  # none of Hydra's own directories


def test_the_script_measures_what_training_measured(run):
    path, _ = run
    best = path / "checkpoints" / "best.pt"
    done = command(
        "scripts/evaluate.py", f"checkpoint={best}", "seeds=3-4", "device=cpu",
        cwd=path,
    )  # fmt: skip
    numbers = last_line(done)
    again, first = read_json(path / numbers["eval"]), read_json(path / "eval.json")
    assert [row["ticks"] for row in again["rows"]] == [row["ticks"] for row in first["rows"]]
    assert again["summary"]["native_return"]["mean"] == pytest.approx(
        first["summary"]["native_return"]["mean"], abs=0.5
    )
    assert again["checkpoint_sha256"] == first["checkpoint_sha256"]
    assert [d["failed"] for d in again["diagnostics"]] == [
        d["failed"] for d in first["diagnostics"]
    ]
    assert "off_track_rate" in done.stdout


# Where a run dies in its third update (writing: fourth): what is replaced by sudden death.
DEATHS = {
    "collecting": "env.RacingVectorEnv.step",
    "learning": "algorithm.PPO._step",
    "writing a checkpoint": "files.os.replace",
    "validating": "trainer.PPOTrainer._due",
}
KILLER = """
import os, sys
import common.files as files, envs.racing.vector_env as env
import ppo.algorithm as algorithm, ppo.trainer as trainer
train_once = trainer.PPOTrainer.train_once
def third(self):
    if self.counters.updates == {updates}:
        {target} = lambda *_, **__: os.kill(os.getpid(), 9)
    return train_once(self)
trainer.PPOTrainer.train_once = third
import train_ppo
train_ppo.main()
"""


@pytest.mark.parametrize("death", DEATHS)
def test_a_run_killed_at_any_moment_resumes_to_the_same_weights(run, tmp_path, death):
    whole, _ = run
    killer = KILLER.format(target=DEATHS[death], updates=3 if "writing" in death else 2)
    done = subprocess.run(
        [sys.executable, "-c", killer, "name=./torn", f"run_root={tmp_path}", *TINY],
        cwd=ROOT, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == -9, done.stdout + done.stderr
    torn = tmp_path / "torn"
    saved = {"writing a checkpoint": 384}.get(death, 256)
    resumed = command("train_ppo.py", f"resume={torn}", cwd=tmp_path)
    assert f"resuming after {saved} ticks" in resumed.stdout
    assert last_line(resumed)["ticks"] == "512"
    first, second = (
        torch.load(path / "checkpoints" / "last.pt", weights_only=True) for path in (whole, torn)
    )
    for name, weights in first["policy"].items():
        assert torch.equal(weights, second["policy"][name]), name
    rows = read_jsonl(torn / "metrics.jsonl")
    assert [row["ticks"] for row in rows if "ppo/entropy" in row] == [128, 256, 384, 512]
    best = [load_policy(path).about["ticks"] for path in (whole, torn)]
    assert best[0] == best[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["resume={run}", "ppo.clip=0.3"], "leave out ppo.clip"),
        (["resume={run}/checkpoints"], "not a run directory"),
        (["ppo.lerning_rate=1"], "did you mean 'ppo.learning_rate'"),
        (["device=quantum"], "'quantum' is not auto, cpu"),
        (["processes=2"], "torchrun --nproc-per-node 2"),
        (["=3"], "write name=value"),
        (["~env"], "a group cannot be removed"),
        (["run_root="], "root of the run directories is empty"),
        (["ppo.network.kernels=[8,4,50]"], "ppo.network.kernels=[8, 4, 50]"),
        (["evaluation.threads=300"], "evaluation.threads is 1 to 256"),
    ],
)
def test_mistakes_are_explained(run, tmp_path, arguments, message):
    arguments = [text.format(run=run[0]) for text in arguments]
    done = command("train_ppo.py", *arguments, cwd=tmp_path, expect=2)
    assert done.stderr.startswith("error: ") and message in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "checkpoint"),
        (["checkpoint=missing.pt"], "missing.pt: no such checkpoint"),
        (["checkpoint={best}", "env=mars"], "env"),
        (["checkpoint={best}", "seeds=499-500"], "sealed"),
        (["checkpoint={best}", "threads=0"], "threads is 1 to 256"),
        (["checkpoint={best}", "direction=cw", "env=carracing"], "cw in carracing"),
    ],
)
def test_mistakes_in_evaluation_are_explained(run, tmp_path, arguments, message):
    best = run[0] / "checkpoints" / "best.pt"
    arguments = [text.format(best=best) for text in arguments]
    done = command("scripts/evaluate.py", *arguments, cwd=tmp_path, expect=2)
    assert done.stderr.startswith("error: ") and message in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("script", "argument"),
    [
        ("train_ppo.py", "evaluation.env=gymnasium_carracing"),
        ("scripts/evaluate.py", "env=gymnasium_carracing"),
    ],
)
def test_a_missing_extra_is_told_at_the_start(run, tmp_path, monkeypatch, script, argument):
    monkeypatch.setattr("ppo.evaluate.find_spec", lambda name: None)
    extra = [f"checkpoint={run[0]}"] if script.startswith("scripts") else []
    done = command(script, argument, *extra, cwd=tmp_path, expect=2)
    assert ".[parity]" in done.stderr
    assert not list(tmp_path.iterdir())


def _without(section):
    def damage(path):
        text = (path / "config.yaml").read_text()
        (path / "config.yaml").write_text(re.sub(rf"(?m)^ *{section}:.*\n", "", text))

    return damage


def _training(**changes):
    def damage(path):
        file = path / "checkpoints" / "last.pt"
        content = torch.load(file, weights_only=True)
        content["training"]["learner"] |= changes
        torch.save(content, file)

    return damage


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: (path / "config.yaml").write_text(""), "config.yaml is damaged"),
        (_without("seed"), "config.yaml is incomplete: no seed"),
        (_without("clip"), "config.yaml is incomplete: no ppo.clip"),
        (_training(streams=[]), "last.pt cannot be resumed"),
        (_training(counters={"laps": 1}), "last.pt cannot be resumed"),
        (_training(algorithm={}), "last.pt cannot be resumed"),
        (lambda path: (path / "metrics.jsonl").write_text("[1]\n"), "is not a JSON object"),
    ],
)
def test_a_damaged_run_is_not_resumed(run, tmp_path, damage, message):
    copy = tmp_path / "copy"
    shutil.copytree(run[0], copy)
    damage(copy)
    done = command("train_ppo.py", f"resume={copy}", cwd=tmp_path, expect=2)
    assert message in done.stderr and str(copy) in done.stderr


def test_settings_of_a_run_are_plain_yaml(run):
    import yaml

    settings = yaml.safe_load((run[0] / "config.yaml").read_text())
    assert settings["env"]["frame_stack"] == 4
    json.dumps(settings)
