"""The command that films a checkpoint."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import av
import pytest
import torch

from envs.racing import ObservationSpec
from ppo import checkpoint
from ppo.config import PolicyConfig
from ppo.policy import ActorCritic

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "watch.py"
SPEC = ObservationSpec(size=64, grey=True, frame_stack=2, action_repeat=4)
NETWORK = PolicyConfig(channels=(4, 8), kernels=(8, 4), strides=(8, 4), hidden=(16,))


@pytest.fixture
def trained(tmp_path):
    """A run directory with a best checkpoint."""
    torch.manual_seed(0)
    run = tmp_path / "runs" / "ppo" / "a"
    path = run / "checkpoints" / "best.pt"
    path.parent.mkdir(parents=True)
    checkpoint.save(path, ActorCritic(SPEC, NETWORK).state_dict(), SPEC, NETWORK, {})
    return run


@pytest.fixture
def watch(monkeypatch, tmp_path, capsys):
    """Runs the script in this process; returns (exit code, last line as a dict, stderr)."""
    spec = importlib.util.spec_from_file_location("watch", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "watch", module)
    spec.loader.exec_module(module)
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["watch.py", *arguments])
        with pytest.raises(SystemExit) as ended:
            module.cli.run_main(module.main)
        out, err = capsys.readouterr()
        pairs = out.splitlines()[-1].split() if out else []
        return ended.value.code or 0, dict(p.split("=", 1) for p in pairs if "=" in p), err

    call.module = module
    return call


def film_length(path):
    with av.open(str(path)) as film:
        return sum(1 for _ in film.decode(video=0))


def test_films_a_run_into_a_run_directory(watch, trained, tmp_path):
    code, facts, _ = watch(
        f"checkpoint={trained}", "track_seed=3", "direction=cw", "max_ticks=12", "fps=10"
    )
    assert code == 0
    video = tmp_path / facts["video"]
    assert video.name == "race_3_cw.mp4" and video.parent.name == "videos"
    assert film_length(video) == int(facts["frames"]) == 1 + 2 + 1 + 10
    assert facts["ticks"] == "12" and facts["finished"] == "false" and facts["lap_time"] == "null"
    result = json.loads((video.parents[1] / "result.json").read_text())
    assert result["native_return"] == pytest.approx(float(facts["native_return"]), rel=1e-4)
    manifest = json.loads((video.parents[1] / "manifest.json").read_text())
    assert manifest["seeds"] == {"track": 3} and len(manifest["checkpoint_sha256"]) == 64


def test_quick_is_short_and_out_says_where(watch, trained, tmp_path):
    quick = watch.module.QUICK_TICKS
    watch.module.QUICK_TICKS = 20
    code, facts, _ = watch(
        f"checkpoint={trained}/checkpoints/best.pt", "quick=true", "out=here/drive.mp4"
    )
    assert quick <= 200 and code == 0
    assert facts["video"] == "here/drive.mp4" and facts["ticks"] == "20"
    assert film_length(tmp_path / "here" / "drive.mp4") == 1 + 10 + 25


def test_a_missing_default_checkpoint_says_what_to_do(watch, tmp_path, monkeypatch):
    monkeypatch.setattr(watch.module, "CHECKPOINT", tmp_path / "carracing.pt")
    code, _, err = watch()
    assert code == 2
    assert f"{tmp_path}/carracing.pt: no such file" in err and "make train" in err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["checkpoint=nowhere.pt"], "nowhere.pt"),
        (["env=rally"], "gymnasium_carracing"),
        (["out=drive.avi"], "ends in .mp4"),
        (["max_ticks=0"], "max_ticks"),
        (["trak_seed=3"], "track_seed"),
        (["fps=30"], "fps"),
        (["fps=0"], "fps"),
        (["track_seed=500"], "sealed"),
        (["track_seed=-3"], "track_seed is 0 or more"),
        (["picture_at=-1"], "picture_at"),
    ],
)
def test_bad_arguments_are_told_in_one_message(watch, trained, tmp_path, arguments, message):
    given = [] if "checkpoint" in arguments[0] else [f"checkpoint={trained}"]
    code, _, err = watch(*given, *arguments)
    assert code == 2
    assert err.startswith("error: ") and message in err and "Traceback" not in err


def test_help_from_anywhere(tmp_path):
    done = subprocess.run(
        [sys.executable, SCRIPT, "--help"], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    for name in ("checkpoint", "env", "track_seed", "direction", "out", "quick"):
        assert name in done.stdout


def test_a_still_is_kept(trained, watch, tmp_path):
    code, values, _ = watch(
        f"checkpoint={trained}", "quick=true", "max_ticks=10", "picture=still.png", "picture_at=0.1"
    )
    assert code == 0 and values["picture"] == "still.png"
    from PIL import Image

    with Image.open(tmp_path / "still.png") as still:
        assert still.size == (1280, 720)
    code, _, err = watch(f"checkpoint={trained}", "picture=still.gif")
    assert code == 2 and "ends in .png" in err
