"""The studies behind the report run, at their smallest, and end with what they promise."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from common.records import RECORDS

ROOT = Path(__file__).resolve().parents[2]


def run(tmp_path, script, *arguments):
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / script, *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
    )
    lines = done.stdout.splitlines()
    pairs = lines[-1].split() if lines and done.returncode == 0 else []
    return done, dict(pair.split("=", 1) for pair in pairs)


@pytest.mark.parity
def test_the_speed_study(tmp_path):
    pytest.importorskip("Box2D", reason="needs the extra `parity`")
    done, values = run(
        tmp_path, "bench_env.py", "quick=true", "rounds=1", "num_envs=4", "reference_steps=10"
    )
    assert done.returncode == 0, done.stderr
    assert float(values["ratio_per_core"]) == pytest.approx(
        float(values["ours"]) / float(values["reference"]), rel=1e-3
    )
    written = next(tmp_path.glob("runs/bench_env/*/result.json"))
    assert json.loads(written.read_text())["ours"] == pytest.approx(float(values["ours"]), rel=1e-4)


@pytest.mark.parity
def test_the_parity_study(tmp_path):
    pytest.importorskip("Box2D", reason="needs the extra `parity`")
    sizes = ("tracks=1", "drives=1", "returns=1", "pixel_tracks=1", "pixel_states=2")
    done, values = run(tmp_path, "parity.py", *sizes)
    assert done.returncode == 0, done.stderr
    assert float(values["track_points_max"]) < 1e-9
    assert float(values["pixels_picture_mean"]) < 3


@pytest.mark.parametrize(
    "script",
    ["ablate.py", "aggregate.py", "bench_env.py", "bench_ppo.py", "figures.py", "parity.py",
     "profile_ppo.py", "report.py"],
)  # fmt: skip
def test_a_misspelt_argument_is_refused(tmp_path, script):
    done, _ = run(tmp_path, script, "quikc=true")
    assert done.returncode == 2
    assert "quikc" in done.stderr and "Traceback" not in done.stderr


def test_the_report_is_what_the_records_give(tmp_path):
    assert list(RECORDS.glob("*.json")), "no records are committed"
    done, _ = run(tmp_path, "report.py", "check=true")
    assert done.returncode == 0, done.stderr
