import subprocess
import sys

import pytest

from common.errors import ConfigError
from common.mirror import LoggerConfig, open_mirror

ROW = {"ticks": 7, "ppo/entropy": -1.5, "episode/return": None}


def test_none_writes_nothing(tmp_path):
    mirror = open_mirror(LoggerConfig(), tmp_path, "run", {})
    mirror.log(ROW, 7)
    mirror.close()
    assert not list(tmp_path.iterdir())


def test_tensorboard_gets_every_number(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    mirror = open_mirror(LoggerConfig(kind="tensorboard"), tmp_path, "run", {})
    mirror.log(ROW, 7)
    mirror.close()
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert events.Tags()["scalars"] == ["ticks", "ppo/entropy"]
    (event,) = events.Scalars("ppo/entropy")
    assert (event.step, event.value) == (7, -1.5)


def test_wandb_stays_offline_by_default(tmp_path):
    # In a process of its own: wandb keeps a service running for the life of one.
    code = (
        "from pathlib import Path\n"
        "from common.mirror import LoggerConfig, open_mirror\n"
        f"mirror = open_mirror(LoggerConfig(kind='wandb'), Path({str(tmp_path)!r}), 'run', {{}})\n"
        f"mirror.log({ROW!r}, 7)\n"
        "mirror.close()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    (directory,) = (tmp_path / "wandb").glob("offline-run-*")
    assert list(directory.glob("*.wandb"))


@pytest.mark.parametrize(
    ("kind", "module"), [("wandb", "wandb"), ("tensorboard", "torch.utils.tensorboard")]
)
def test_a_missing_package_is_named(tmp_path, monkeypatch, kind, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigError, match=f"pip install {kind}"):
        open_mirror(LoggerConfig(kind=kind), tmp_path, "run", {})
