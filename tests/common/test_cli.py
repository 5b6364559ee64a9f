"""The command line of scripts: arguments in, help, results out."""

import json
import subprocess
import sys
from dataclasses import field
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from rich.console import Console

from common import cli
from common.errors import ConfigError
from common.runs import Run
from common.schema import config_class
from common.statistics import Estimate

ROOT = Path(__file__).resolve().parents[2]


@config_class
class Camera:
    """Where the car is seen from.

    Attributes:
        zoom: pixels per unit.
    """

    zoom: float = 1.0


@config_class
class Settings:
    """Of the command.

    Attributes:
        seeds: track seeds.
    """

    checkpoint: Path
    env: Literal["race", "carracing"] = "race"
    seeds: str = "0-99"
    label: str | None = None
    quick: bool = False
    sizes: tuple[int, ...] = (1, 2)
    camera: Camera = field(default_factory=Camera)


def parse(*argv: str) -> Settings:
    return cli.parse(Settings, "Evaluate a policy.", argv)


def test_values_get_their_types():
    settings = parse(
        "checkpoint=007", "seeds=5", "quick=true", "sizes=[3,4]", "camera.zoom=2", "env=carracing"
    )
    assert settings == Settings(
        Path("007"), env="carracing", seeds="5", quick=True, sizes=(3, 4), camera=Camera(2.0)
    )


def test_text_is_taken_as_it_is():
    text = "a=b: ${x} [1, 'true"
    assert parse("checkpoint=x", f"label={text}").label == text
    assert parse("checkpoint=x", "label=null").label is None
    assert parse("checkpoint=null").checkpoint == Path("null")
    assert parse("checkpoint=x", "seeds=1_000").seeds == "1_000"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "checkpoint: needs a value"),
        (["race"], "'race': write name=value (--help lists the names)"),
        (["=3"], "'=3': write name=value"),
        (["--quick"], "'--quick': write name=value"),
        (["--quick=true"], "'--quick=true': write quick=true, without dashes"),
        (["chekpoint=x"], "unknown key 'chekpoint'; did you mean 'checkpoint'?"),
        (["zoom=2"], "unknown key 'zoom'; did you mean 'camera.zoom'?"),
        (["checkpoint=x", "quick=maybe"], "quick: expected true or false, got 'maybe'"),
        (["checkpoint=x", "sizes=[1"], "cannot read 'sizes=[1'"),
        (["checkpoint=x", "camera=3", "camera.zoom=2"], "camera was given another value"),
        (["checkpoint=x", "env=rce"], "env: 'rce' is not one of race, carracing"),
    ],
)
def test_bad_arguments_are_explained(argv, message):
    with pytest.raises(ConfigError) as caught:
        parse(*argv)
    assert message in str(caught.value)


def test_help_shows_every_setting(capsys):
    with pytest.raises(SystemExit) as exit_info:
        parse("--help")
    assert exit_info.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Evaluate a policy."
    text = "\n".join(" ".join(line.split()) for line in lines)
    for expected in (
        "checkpoint=<required>\n[path]",
        "env=race\n[race | carracing]",
        "seeds=0-99\ntrack seeds. [text]",
        "label=null\n[text | null]",
        "quick=false\n[true | false]",
        "sizes=[1, 2]\n[list of whole number]",
        "camera: Where the car is seen from.\ncamera.zoom=1.0\npixels per unit. [number]",
    ):
        assert expected in text


def test_finish_prints_and_records_the_same(tmp_path, capsys):
    run = Run.create(tmp_path, "bench", {}, seeds={})
    metrics = {
        "ratio_per_core": 312.44449,
        "ours": np.int64(52100),
        "small": np.float32(1.5e-7),
        "passed": np.bool_(True),
        "missing": None,
        "undefined": float("nan"),
        "progress": Estimate(0.9, 0.8, 1.0, 20),
        "video": Path("a film.mp4"),
    }
    print("anything before")
    cli.finish(metrics, run, name="bench")
    assert capsys.readouterr().out.splitlines()[-1] == (
        "ratio_per_core=312.444 ours=52100 small=1.5e-07 passed=true missing=null undefined=nan "
        "progress=0.9 video='a film.mp4'"
    )
    recorded = json.loads((run.path / "bench.json").read_text())
    assert recorded["ratio_per_core"] == 312.44449
    interval = {"mean": 0.9, "low": 0.8, "high": 1.0, "n": 20}
    assert recorded["progress"] == recorded["progress"] | interval
    assert recorded["undefined"] is None and recorded["passed"] is True


def test_table_in_a_pipe_keeps_long_rows_whole(capsys):
    columns = [f"column{i}" for i in range(30)]
    cli.table(columns, [[f"value{i}" for i in range(29)] + [0.123456]], title="Results")
    rows = [line for line in capsys.readouterr().out.splitlines() if "value0" in line]
    assert len(rows) == 1 and "value28" in rows[0] and "0.1235" in rows[0]


@pytest.mark.parametrize("width", [30, 80, 200])
def test_a_table_cuts_nothing_off(capsys, monkeypatch, width):
    monkeypatch.setattr(cli, "Console", lambda: Console(force_terminal=True, width=width))
    long = "runs/ppo/" + "x" * 60
    cli.table(["name", "value", "run"], [["a", 0.25, long], ["b", 3, "runs/ppo/b"]], title="Runs")
    out = capsys.readouterr().out
    assert long in out and "0.25" in out and "Runs" in out and "…" not in out


@pytest.mark.parametrize(
    ("body", "code", "err"),
    [
        ("return None", 0, ""),
        ("return 1", 1, ""),
        ("raise UserError('bad')", 2, "error: bad\n"),
        ("raise KeyboardInterrupt", 130, "interrupted\n"),
    ],
)
def test_exit_codes(body, code, err):
    script = f"""
from common.cli import run_main
from common.errors import UserError
def main():
    {body}
run_main(main)
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (code, err)
