"""Training as a user starts it: exact resume, accumulation, two processes, damage and mistakes."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import rssm
from common.errors import ConfigError, UserError
from common.files import read_json, read_jsonl, write_json
from rssm import checkpoint
from rssm.config import DecoderConfig, OptimiserConfig, RungConfig
from rssm.data import DataConfig
from rssm.training_run import WorldModelTrainConfig, train
from tests.rssm.toys import counting_data

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = (
    "device=cpu", "threads=1", "display=false", "updates=6", "log_every=2", "checkpoint_every=2",
    "rssm.channels=[4,8]", "rssm.deter=16", "rssm.stoch=4", "rssm.hidden=16",
    "rssm.head_units=16", "data.dataset=D", "data.length=8", "data.batch=4",
    "validation.every=3", "validation.windows=3", "validation.context=5", "validation.horizon=4",
    "readout.updates=50", "readout.batch=32",
)  # fmt: skip
SETTINGS = tuple(text.replace("rssm.", "network.") for text in SETTINGS)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    counting_data(root, episodes=6)
    return root


def command(root, out, *more, program=None):
    program = program or [sys.executable, "train_world_model.py"]
    return [*program, *SETTINGS, f"data.root={root}", f"run_root={out}", "name=./a", *more]


def run(root, out, *more, **options):
    return subprocess.run(
        command(root, out, *more, **options), cwd=ROOT, capture_output=True, text=True, timeout=600
    )


def killed_and_resumed(root, out, moment, *more):
    """A run killed with -9 in the update after `moment`, and what resuming it printed."""
    script = (
        "import os, signal, train_world_model\n"
        "from rssm.training import WorldModelTrainer\n"
        "train_once = WorldModelTrainer.train_once\n"
        "def deadly(self):\n"
        "    train_once(self)\n"
        f"    if self.update == {moment} + 1: os.kill(os.getpid(), signal.SIGKILL)\n"
        "WorldModelTrainer.train_once = deadly\n"
        "train_world_model.main()\n"
    )
    killed = run(root, out, *more, program=[sys.executable, "-c", script])
    assert killed.returncode == -9
    return subprocess.run(
        [sys.executable, "train_world_model.py", f"resume={out / 'a'}", "display=false"],
        cwd=ROOT, capture_output=True, text=True, timeout=600,
    )  # fmt: skip


def weights(path):
    return checkpoint.load(path)["weights"]


def equal(one, other):
    return one.keys() == other.keys() and all((one[k] == other[k]).all() for k in one)


@pytest.fixture(scope="module")
def finished(root, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs")
    done = run(root, out)
    assert done.returncode == 0, done.stderr
    return out / "a", done


def test_a_run_leaves_its_records(finished, root):
    path, done = finished
    last = done.stdout.strip().splitlines()[-1]
    assert f"run={path}" in last and "psnr_open=" in last and "corr_speed=" in last
    rows = read_jsonl(path / "metrics.jsonl")
    logged = [row for row in rows if "train/loss" in row]
    assert [row["updates"] for row in logged] == [2, 4, 6]
    assert [row["frames"] for row in logged] == [64, 128, 192]
    assert {"train/image", "train/kl", "train/speed", "frames_per_second", "reading_share"} <= set(
        logged[0]
    )
    assert [row["updates"] for row in rows if "val/loss" in row] == [3, 6, 6]
    assert rows[-1]["readout/after"] < rows[-1]["readout/before"]
    manifest = read_json(path / "manifest.json")
    assert set(manifest["data"]) == {"train", "val"}
    world = rssm.load_world_model(path / "checkpoints" / "final.pt")
    assert world.about["updates"] == 6 and world.about["dataset"] == "D"
    assert world.heads.telemetry == ("speed", "steer") and world.heads.has_off
    last = torch.load(path / "checkpoints" / "last.pt", weights_only=True)
    assert 0 < last["training"]["session"]["seconds"] < read_json(path / "result.json")["seconds"]


def test_the_same_seed_gives_the_same_weights(finished, root, tmp_path):
    path, _ = finished
    again = run(root, tmp_path)
    assert again.returncode == 0, again.stderr
    one, other = (weights(p / "checkpoints" / "final.pt") for p in (path, tmp_path / "a"))
    assert equal(one, other)


@pytest.mark.slow
@pytest.mark.parametrize("moment", [0, 1, 3, 4])
def test_a_killed_run_ends_with_the_weights_of_a_whole_one(finished, root, tmp_path, moment):
    """Killed with -9 in the update after `moment`: before the first checkpoint and in between."""
    path, _ = finished
    done = killed_and_resumed(root, tmp_path, moment)
    assert done.returncode == 0, done.stderr
    assert f"resuming after {moment // 2 * 2} updates" in done.stdout
    assert read_json(tmp_path / "a" / "result.json")["seconds"] > 0
    final = "checkpoints/final.pt"
    assert equal(weights(path / final), weights(tmp_path / "a" / final))
    whole, resumed = (
        [(row["updates"], row.get("train/loss"), row.get("val/loss")) for row in read_jsonl(p)]
        for p in (path / "metrics.jsonl", tmp_path / "a" / "metrics.jsonl")
    )
    assert whole == resumed


@pytest.mark.slow
def test_a_mean_of_the_loss_goes_on_over_a_kill(root, tmp_path):
    """Rows and checkpoints come in rhythms of their own."""
    rhythm = ("log_every=3",)
    whole = run(root, tmp_path, "name=./b", *rhythm)
    assert whole.returncode == 0, whole.stderr
    done = killed_and_resumed(root, tmp_path, 2, *rhythm)
    assert done.returncode == 0, done.stderr
    one, other = (
        [
            {name: value for name, value in row.items() if name.startswith("train/")}
            for row in read_jsonl(tmp_path / name / "metrics.jsonl")
        ]
        for name in "ab"
    )
    assert one == other


def test_in_the_end_only_the_heads_are_fitted_once_more(finished):
    path, _ = finished
    before, after = (weights(path / "checkpoints" / f"{name}.pt") for name in ("last", "final"))
    differ = {name.split(".")[0] for name in before if (before[name] != after[name]).any()}
    assert differ == {"heads"}
    unchanged = ("heads.mean", "heads.std")  # the statistics of the targets
    assert equal({k: before[k] for k in unchanged}, {k: after[k] for k in unchanged})


def test_a_run_killed_while_the_heads_are_fitted_is_finished_by_resuming(finished, root, tmp_path):
    script = (
        "import os, signal, train_world_model\n"
        "from rssm import training_run\n"
        "training_run.fit_heads = lambda *rest, **named: os.kill(os.getpid(), signal.SIGKILL)\n"
        "train_world_model.main()\n"
    )
    assert run(root, tmp_path, program=[sys.executable, "-c", script]).returncode == -9
    assert not (tmp_path / "a" / "checkpoints" / "final.pt").exists()
    done = subprocess.run(
        [sys.executable, "train_world_model.py", f"resume={tmp_path / 'a'}", "display=false"],
        cwd=ROOT, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    final = "checkpoints/final.pt"
    assert equal(weights(finished[0] / final), weights(tmp_path / "a" / final))


def test_heads_that_the_decoder_draws_from_are_not_fitted_anew():
    with pytest.raises(ValueError, match=r"readout.updates=0"):
        WorldModelTrainConfig(decoder=DecoderConfig(motion=True))


def test_accumulation_is_the_whole_batch(finished, root, tmp_path):
    """Up to rounding and the noise of the latent state, which belongs to a pass."""
    plain = ("loss.free_nats=1e6", "loss.image_every=1", "loss.overshoot=0")
    done = run(root, tmp_path, "data.micro_batch=2", "updates=3", *plain)
    assert done.returncode == 0, done.stderr
    rows = read_jsonl(tmp_path / "a" / "metrics.jsonl")
    assert [row["frames"] for row in rows if "frames" in row] == [64, 96]
    whole = run(root, tmp_path, "name=./b", "updates=3", *plain)
    assert whole.returncode == 0, whole.stderr
    other = read_jsonl(tmp_path / "b" / "metrics.jsonl")
    for name in ("train/image", "train/grad_norm"):
        pair = [next(row[name] for row in rows if name in row) for rows in (rows, other)]
        assert pair[0] == pytest.approx(pair[1], rel=0.05)


@pytest.mark.slow
def test_two_processes_train_one_model(root, tmp_path):
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    program = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
        "train_world_model.py",
    ]  # fmt: skip
    done = subprocess.run(
        command(root, tmp_path, "processes=2", program=program), cwd=ROOT, env=environment,
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    rows = read_jsonl(tmp_path / "a" / "metrics.jsonl")
    assert [row["updates"] for row in rows if "train/loss" in row] == [2, 4, 6]
    assert rssm.load_world_model(tmp_path / "a" / "checkpoints" / "final.pt").about["updates"] == 6


def test_a_warm_start_begins_with_the_other_models_weights(finished, root, tmp_path):
    path, _ = finished
    done = run(
        root, tmp_path, f"warm_start={path / 'checkpoints' / 'final.pt'}", "updates=1",
        "optimiser.learning_rate=1e-12", "heads.telemetry=[speed]",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "warm start:" in done.stdout and "mismatched: heads.measure.3.weight" in done.stdout
    one, other = (weights(p / "checkpoints" / "final.pt") for p in (path, tmp_path / "a"))
    torch.testing.assert_close(one["core.gates.weight"], other["core.gates.weight"])


def test_a_warm_run_killed_before_its_first_checkpoint_begins_warm_again(finished, root, tmp_path):
    path, _ = finished
    warm = (f"warm_start={path / 'checkpoints' / 'final.pt'}", "updates=2", "checkpoint_every=0")
    whole = run(root, tmp_path, *warm, "name=./b")
    assert whole.returncode == 0, whole.stderr
    done = killed_and_resumed(root, tmp_path, 0, *warm)
    assert done.returncode == 0, done.stderr
    one, other = (weights(tmp_path / n / "checkpoints" / "final.pt") for n in "ab")
    assert equal(one, other)


def test_what_cannot_begin_leaves_no_directory(root, tmp_path):
    config = WorldModelTrainConfig(
        data=DataConfig(root=str(root), dataset="D", length=8),
        warm_start=str(tmp_path / "nowhere.pt"), run_root=str(tmp_path / "runs"),
    )  # fmt: skip
    with pytest.raises(UserError, match=r"nowhere\.pt"):
        train(config, {})
    assert not (tmp_path / "runs").exists()


def test_a_run_does_not_go_on_with_other_data(finished, tmp_path):
    path, _ = finished
    copy = tmp_path / "a"
    shutil.copytree(path, copy)
    manifest = read_json(copy / "manifest.json")
    manifest["data"]["train"] = "0" * 64
    write_json(copy / "manifest.json", manifest)
    with pytest.raises(UserError, match="was trained on another D than"):
        train(WorldModelTrainConfig(resume=str(copy)), {}, [f"resume={copy}"])


def test_what_is_wrong_is_said(finished, root, tmp_path):
    path, _ = finished
    config = WorldModelTrainConfig(data=DataConfig(root=str(root), dataset="E"))
    with pytest.raises(UserError, match="E"):
        train(config, {})
    done = run(root, tmp_path, "data.lenght=9")
    assert done.returncode == 2 and "did you mean 'data.length'" in done.stderr.replace("\n", " ")
    done = run(root, tmp_path, "data.length=500")
    assert done.returncode == 2 and "a window has 500 rows" in done.stderr
    done = run(root, tmp_path, "processes=2")
    assert done.returncode == 2 and "torchrun" in done.stderr
    resumed = WorldModelTrainConfig(resume=str(path), seed=4)
    with pytest.raises(ConfigError, match="leave out seed"):
        train(resumed, {}, ["seed=4"])


BROKEN = """\
import torch, train_world_model
from rssm.training import WorldModelTrainer

honest = WorldModelTrainer.pass_loss

def broken(self, batch, number):
    losses = honest(self, batch, number)
    factor = float("nan") if self.update in {updates} else 1.0
    return losses._replace(total=losses.total * factor)

WorldModelTrainer.pass_loss = broken
train_world_model.main()
"""


def test_a_gradient_that_is_not_finite_changes_nothing(finished, root, tmp_path):
    script = BROKEN.format(updates=[2])
    done = run(root, tmp_path, program=[sys.executable, "-c", script])
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "a" / "nonfinite").glob("*.pt"))) == 1
    assert rssm.load_world_model(tmp_path / "a" / "checkpoints" / "final.pt").about["updates"] == 6


def test_gradients_that_stay_not_finite_end_training(root, tmp_path):
    script = BROKEN.format(updates=list(range(2, 9)))
    done = run(root, tmp_path, "optimiser.max_nonfinite=3",
               program=[sys.executable, "-c", script])  # fmt: skip
    assert done.returncode == 2
    assert "was not finite in 3 updates in a row" in done.stderr
    assert len(list((tmp_path / "a" / "nonfinite").glob("*.pt"))) == 3


def test_the_learning_rate_rises_in_a_tenth_of_the_budget_at_most():
    settings = OptimiserConfig(warmup=100, final=0.1)
    assert settings.scale(0, 40) == 0.25 and settings.scale(3, 40) == 1 - 0.9 * 3 / 40
    assert settings.scale(99, 5000) > 0.98 > settings.scale(95, 5000)
    assert settings.scale(4999, 5000) < 0.101
    assert OptimiserConfig(warmup=0).scale(0, 40) == 1


def resume(path, *more):
    settings = dict(text.split("=", 1) for text in more)
    config = WorldModelTrainConfig(
        resume=str(path),
        data=DataConfig(root=settings.get("data.root", "data")),
        updates=int(settings.get("updates", 2000)),
    )
    return train(config, {}, [f"resume={path}", *more])


def test_a_finished_run_whose_checkpoint_is_lost_is_left_alone(finished, tmp_path):
    copy = tmp_path / "a"
    shutil.copytree(finished[0], copy)
    (copy / "checkpoints" / "last.pt").unlink()
    rows = (copy / "metrics.jsonl").read_text()
    with pytest.raises(UserError, match=r"last\.pt is missing, though the run has trained for 6"):
        resume(copy)
    assert (copy / "metrics.jsonl").read_text() == rows and (copy / "result.json").exists()


def test_a_run_goes_on_after_its_data_moved(finished, root, tmp_path, capfd):
    copy, moved = tmp_path / "a", tmp_path / "elsewhere"
    shutil.copytree(finished[0], copy)
    shutil.copytree(root, moved)
    config = (copy / "config.yaml").read_text().replace(str(root), str(tmp_path / "gone"))
    (copy / "config.yaml").write_text(config)
    with pytest.raises(UserError, match=r"if the data moved, add data\.root="):
        resume(copy)
    assert resume(copy, f"data.root={moved}", "updates=7")["updates"] == 7
    assert str(moved) in (copy / "config.yaml").read_text()
    other = tmp_path / "other"
    counting_data(other, episodes=7)
    with pytest.raises(UserError, match="was trained on another D"):
        resume(copy, f"data.root={other}", "updates=8")


def test_a_finished_run_says_so_when_it_is_resumed(finished, tmp_path, capfd):
    copy = tmp_path / "a"
    shutil.copytree(finished[0], copy)
    before = weights(copy / "checkpoints" / "final.pt")
    resume(copy)
    assert "training is finished after 6 updates" in capfd.readouterr().out
    assert equal(before, weights(copy / "checkpoints" / "final.pt"))


def test_ctrl_c_saves_and_the_run_ends_as_if_never_stopped(finished, root, tmp_path):
    script = (
        "import os, signal, train_world_model\n"
        "from rssm.training import WorldModelTrainer\n"
        "train_once = WorldModelTrainer.train_once\n"
        "def stopped(self):\n"
        "    if self.update == 2: os.kill(os.getpid(), signal.SIGINT)\n"
        "    train_once(self)\n"
        "WorldModelTrainer.train_once = stopped\n"
        "train_world_model.main()\n"
    )
    done = run(root, tmp_path, program=[sys.executable, "-c", script])
    assert done.returncode == 130, done.stderr
    assert "stopped after 3 updates" in done.stdout
    assert f"resume={tmp_path / 'a'}" in done.stdout
    resume(tmp_path / "a")
    final = "checkpoints/final.pt"
    assert equal(weights(finished[0] / final), weights(tmp_path / "a" / final))


def test_a_rung_without_its_parents_weights_names_the_command(root, tmp_path):
    rung = RungConfig(name="P5", parent="P4")
    config = WorldModelTrainConfig(
        data=DataConfig(root=str(root), dataset="D", length=8), rung=rung,
        warm_start=str(tmp_path / "ladder/laptop/P4-s1/checkpoints/final.pt"),
        run_root=str(tmp_path / "runs"),
    )  # fmt: skip
    with pytest.raises(UserError, match=r"python train_world_model\.py experiment=P4 seed=1"):
        train(config, {})


def test_updates_can_be_traced(root, tmp_path):
    done = run(root, tmp_path, "updates=3", "profile=1", "readout.updates=0", "validation.every=0")
    assert done.returncode == 0, done.stderr
    assert "traceEvents" in read_json(tmp_path / "a" / "profile.json")
