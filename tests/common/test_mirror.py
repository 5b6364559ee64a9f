import os
import subprocess
import sys
from pathlib import Path

import pytest

from common.errors import ConfigError
from common.mirror import LoggerConfig, check_logger, open_mirror

ROOT = Path(__file__).resolve().parents[2]
ROW = {"ticks": 7, "ppo/entropy": -1.5, "episode/return": None}


def test_none_writes_nothing(tmp_path):
    mirror = open_mirror(LoggerConfig(), tmp_path, "run", {})
    mirror.log(ROW, 7)
    mirror.close()
    assert not list(tmp_path.iterdir())


def test_tensorboard_gets_every_number(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    mirror = open_mirror(LoggerConfig(kind="tensorboard"), tmp_path, "run", {})
    assert mirror.place.endswith(f"tensorboard --logdir {tmp_path}/tensorboard")
    mirror.log(ROW, 7)
    mirror.close()
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert events.Tags()["scalars"] == ["ticks", "ppo/entropy"]
    (event,) = events.Scalars("ppo/entropy")
    assert (event.step, event.value) == (7, -1.5)


def test_wandb_stays_offline_by_default(tmp_path):
    # In a process of its own: wandb keeps a service running for the life of one.
    environment = {name: v for name, v in os.environ.items() if name != "HOME"}  # as in a container
    environment |= {"PYTHONPATH": str(ROOT)}
    code = (
        "from pathlib import Path\n"
        "from common.mirror import LoggerConfig, check_logger, open_mirror\n"
        f"mirror = open_mirror(LoggerConfig(kind='wandb'), Path({str(tmp_path)!r}), 'run', {{}})\n"
        f"mirror.log({ROW!r}, 7)\n"
        "mirror.close()\n"
        "print(mirror.place)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=100, env=environment
    )
    assert (done.returncode, done.stderr) == (0, "")  # nothing follows a command's last line
    assert (
        done.stdout.count("\n") == 1 and f"wandb sync {tmp_path}/wandb/offline-run-" in done.stdout
    )
    (directory,) = (tmp_path / "wandb").glob("offline-run-*")
    assert list(directory.glob("*.wandb"))


@pytest.mark.parametrize(("kind", "module"), [("wandb", "wandb"), ("tensorboard", "tensorboard")])
def test_a_missing_package_is_named(tmp_path, monkeypatch, kind, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigError, match=f"pip install {kind}"):
        open_mirror(LoggerConfig(kind=kind), tmp_path, "run", {})


def test_online_without_a_key_is_refused_before_anything_is_made(tmp_path, monkeypatch):
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="wandb login"):
        check_logger(LoggerConfig(kind="wandb", mode="online"))
    assert not list(tmp_path.iterdir())
