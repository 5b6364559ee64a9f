"""Data-parallel training as a user starts it: torchrun with two processes of this machine.

Two cars race in every world and end one by one, so the processes have different numbers of rows to
learn from, and of micro-batches: whoever exchanges gradients once too often would wait for ever.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from common.files import read_json, read_jsonl
from tests.commands import ROOT

pytestmark = pytest.mark.slow

SETTINGS = (
    "processes=2", "device=cpu", "threads=1", "display=false", "video=false",
    "total_timesteps=1500", "checkpoint_every=256",
    "evaluation.every=512", "evaluation.validation_tracks=1", "evaluation.test_seeds=3",
    "evaluation.background=false",
    "env.track_pool=4", "env.size=64", "env.num_agents=2", "env.width_scale=0.5",
    "env.max_ticks=200", "endings.off_track_limit=1",
    "ppo.num_envs=8", "ppo.num_steps=16", "ppo.epochs=1", "ppo.minibatches=2",
    "ppo.micro_batch=1", "ppo.network.channels=[4,8,8]", "ppo.network.hidden=[16]",
    "ppo.network.initial_action=[0.5,0.9,0.05]",
)  # fmt: skip
SECONDS = 600  # who waits for a dead process gives up only after half an hour

# train_ppo.py, each of whose processes notes down its part of every update, and may be killed.
SCRIPT = """\
import json, os, signal
import train_ppo
from ppo.trainer import PPOTrainer

rank = int(os.environ["RANK"])
train_once = PPOTrainer.train_once

def watched(self):
    if rank == 1 and self.counters.updates == {deadly}:
        os.kill(os.getpid(), signal.SIGKILL)
    row = train_once(self)
    note = dict(
        updates=self.counters.updates,
        ticks=self.counters.ticks,
        rows=len(self.buffer.active_rows()),
        weights=[p.double().sum().item() for p in self.policy.parameters()],
        moments=vars(self.scaler.moments),
    )
    with open(f"{folder}/rank{{rank}}.jsonl", "a") as file:
        print(json.dumps(note), file=file)
    return row

PPOTrainer.train_once = watched
if __name__ == "__main__":
    train_ppo.main()
"""


def torchrun(script, *arguments, cwd):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
         str(script), *arguments],
        cwd=cwd, env=environment, capture_output=True, text=True, timeout=SECONDS,
    )  # fmt: skip


def watched(folder: Path, deadly: int) -> Path:
    folder.mkdir()
    path = folder / "watched.py"
    path.write_text(SCRIPT.format(deadly=deadly, folder=folder))
    return path


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A finished run of two processes, and what each of them noted down."""
    root = tmp_path_factory.mktemp("whole")
    notes = root / "notes"
    done = torchrun(watched(notes, deadly=-1), "name=./whole", *SETTINGS, cwd=root)
    assert done.returncode == 0, done.stdout + done.stderr
    return root / "runs" / "whole", [read_jsonl(notes / f"rank{rank}.jsonl") for rank in (0, 1)]


def last(path):
    return torch.load(path / "checkpoints" / "last.pt", weights_only=True)


def test_both_processes_learn_the_same_from_what_both_saw(whole):
    path, (first, second) = whole
    rows = read_jsonl(path / "metrics.jsonl")
    rows = [row for row in rows if "ppo/policy_loss" in row]
    assert len(rows) == len(first) == len(second) >= 4
    decisions = 0
    for row, one, two in zip(rows, first, second, strict=True):
        assert one["weights"] == two["weights"]
        assert one["moments"] == two["moments"]  # rewards are scaled alike
        decisions += one["rows"] + two["rows"]
        assert row["decisions"] == decisions
        assert row["ticks"] == one["ticks"] == two["ticks"]
        assert 3 * decisions < row["ticks"] <= 4 * decisions  # some end inside an action repeat
    assert len({tuple(note["weights"]) for note in first}) == len(first)
    diagnoses = read_json(path / "eval.json")["diagnostics"]
    assert "steering_collapse" in {diagnosis["name"] for diagnosis in diagnoses}


def test_processes_may_have_different_numbers_of_rows(whole):
    _, (first, second) = whole
    pairs = [(one["rows"], two["rows"]) for one, two in zip(first, second, strict=True)]
    # Minibatches are halves, micro-batches have one row.
    assert any(-(-one // 2) != -(-two // 2) for one, two in pairs), pairs


def test_a_killed_process_ends_the_other_and_the_run_resumes_to_the_same_weights(whole, tmp_path):
    done = torchrun(watched(tmp_path / "notes", deadly=3), "name=./torn", *SETTINGS, cwd=tmp_path)
    assert done.returncode != 0
    assert "Signal 9 (SIGKILL)" in done.stderr
    torn = tmp_path / "runs" / "torn"
    assert last(torn)["about"]["updates"] < last(whole[0])["about"]["updates"]
    resumed = torchrun(ROOT / "train_ppo.py", f"resume={torn}", cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    straight, torn = last(whole[0]), last(torn)
    for name, weights in straight["policy"].items():
        assert torch.equal(weights, torn["policy"][name]), name
    assert straight["about"]["ticks"] == torn["about"]["ticks"]
    moments = [
        content["training"]["learner"]["streams"][0]["scaler"]["moments"]
        for content in (straight, torn)
    ]
    assert moments[0] == moments[1]
