"""Commands run as a user types them, in this process."""

import io
import runpy
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TINY = (
    "ppo.num_envs=4", "ppo.num_steps=8", "ppo.minibatches=2", "ppo.epochs=1",
    "ppo.network.channels=[4,8,8]", "ppo.network.hidden=[16]", "total_timesteps=512",
    "checkpoint_every=128", "evaluation.every=256", "evaluation.validation_tracks=1",
    "evaluation.test_seeds=3-4", "evaluation.background=false", "env.track_pool=4", "env.size=64",
    "threads=1", "video=false",
)  # fmt: skip


@dataclass
class Done:
    code: int
    stdout: str
    stderr: str


def command(script, *arguments, cwd, expect=0):
    """Run a script as `python <script> <arguments>` would, but in this process: imports cost."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.chdir(cwd)
        patch.setattr(sys, "argv", [str(script), *map(str, arguments)])
        try:
            runpy.run_path(str(ROOT / script), run_name="__main__")
            code = 0
        except SystemExit as stop:
            code = stop.code or 0
    done = Done(code, out.getvalue(), err.getvalue())
    assert done.code == expect, done
    return done


def last_line(done):
    line = done.stdout.strip().splitlines()[-1]
    return dict(pair.split("=", 1) for pair in line.split())
