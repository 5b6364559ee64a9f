"""The comparison with Stable-Baselines3 runs for real at its smallest; its verdicts are exact."""

import importlib.util
import math
import sys
import time
from dataclasses import dataclass

import numpy as np
import pytest

from common.errors import UserError
from common.files import read_json
from envs.racing.config import ObservationSpec
from envs.racing.pixels.adapter import SCORE_TOP, SCORE_WIDTH
from experiments.training import bench as benches
from experiments.training.bench import Stopwatch
from tests.commands import ROOT, command, last_line

SCRIPT = "scripts/bench_ppo.py"


@pytest.fixture
def bench(monkeypatch):
    spec = importlib.util.spec_from_file_location("bench_ppo", ROOT / SCRIPT)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "bench_ppo", module)  # dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


@pytest.mark.parity
def test_both_parts_at_their_smallest(tmp_path):
    pytest.importorskip("Box2D", reason="needs the extra `parity`")
    pytest.importorskip("stable_baselines3", reason="needs the extra `bench`")
    done = command(SCRIPT, "quick=true", "threads=1", cwd=tmp_path)
    values = last_line(done)
    (run,) = tmp_path.glob("runs/bench_ppo/*")
    result, details = read_json(run / "result.json"), read_json(run / "details.json")
    assert result.keys() == values.keys()

    ours, theirs = details["speed"]["sides"]["ours"], details["speed"]["sides"]["sb3"]
    for name in ("parameters", "mflop_per_row"):  # the same network, or the ratio means nothing
        assert ours[name] == theirs[name]
    for side in (ours, theirs):
        assert all(0 <= value < 1 for name, value in side.items() if name.endswith("_share"))
    assert result["ratio"] == pytest.approx(result["ours"] / result["sb3"])
    assert result["ratio"] > 0 and 0 < result["env_share"] < theirs["env_share"]

    curves = details["learning"]["curves"]
    assert len(curves["ours"]) == len(curves["sb3"]) == 1  # no progress at all was asked for
    assert result["learning_works"] is True
    assert "learning_ratio" not in result  # of a tenth of a second it would mean nothing


@pytest.mark.parity
def test_stable_baselines_sees_no_score(bench):
    pytest.importorskip("Box2D", reason="needs the extra `parity`")
    pytest.importorskip("stable_baselines3", reason="needs the extra `bench`")
    side = bench.StableBaselines(1, n_steps=2, batch_size=2, n_epochs=1)
    try:
        side.advance()
        seen = side.model.rollout_buffer.observations.reshape(-1, 3, 96, 96)
        drawn = side.model.env.unwrapped.envs[0].unwrapped.state
    finally:
        side.close()
    assert drawn[SCORE_TOP:, :SCORE_WIDTH].any() and len(seen) == 2
    for picture in seen:
        assert not picture[:, SCORE_TOP:, :SCORE_WIDTH].any()
        assert picture[:, :SCORE_TOP].any() and picture[:, SCORE_TOP:, SCORE_WIDTH:].any()


def points(*pairs):
    return [{"seconds": seconds, "progress": progress} for seconds, progress in pairs]


def test_a_target_that_was_not_reached_has_no_time(bench):
    settings = bench.Settings(target_progress=0.9)
    ours = points((50.0, 0.4), (100.0, 0.92))
    assert bench.verdict(ours, points((500.0, 0.3), (1020.0, 0.2)), settings) == {
        "learning_seconds": 100.0,
        "learning_seconds_sb3": None,
        "learning_ratio": None,
        "learning_at_least": 10.2,
        "progress_sb3": 0.3,
    }
    assert bench.verdict(ours, points((200.0, 0.3), (400.0, 0.9)), settings) == {
        "learning_seconds": 100.0,
        "learning_seconds_sb3": 400.0,
        "learning_ratio": 4.0,
        "learning_at_least": 2.0,
        "progress_sb3": 0.9,
    }
    assert set(bench.verdict(points((50.0, 0.4)), [], settings).values()) == {None}


class Parked:
    """A side that trains without getting any better: its car stands still."""

    spec = ObservationSpec(size=64, action_repeat=10)

    def __init__(self, watch):
        self.watch, self.driver, self.ticks = watch, self, 0

    def advance(self):
        self.ticks += 100

    def initial(self, n, seeds=None):
        return None

    def act(self, carry, observation, is_first, deterministic=True):
        return np.zeros((len(observation), 3), np.float32), carry


def test_training_ends_with_a_validation_when_its_budget_or_time_is_spent(bench):
    settings = bench.Settings(validation_tracks=1)
    (point,) = bench.curve(Parked(Stopwatch()), settings, math.inf, budget=300)
    assert point["ticks"] == 300 and abs(point["progress"]) < 0.01
    (point,) = bench.curve(Parked(Stopwatch()), settings, math.inf, limit=1e-9)
    assert point["ticks"] == 100
    validated = bench.curve(Parked(Stopwatch()), settings, 0.0, budget=200)
    assert [point["ticks"] for point in validated] == [100, 200]


def test_a_stopwatch_counts_what_it_watches_and_starts_anew():
    class Worker:
        def work(self, seconds):
            time.sleep(seconds)
            return seconds

    worker, watch = Worker(), Stopwatch()
    watch.watch(worker, "work", "working")
    lap = watch.lap(lambda: [worker.work(0.02), worker.work(0.02), time.sleep(0.02)])
    assert 0.04 <= lap["working"] <= lap["total"] - 0.02
    assert watch.lap(lambda: None).keys() == {"total"}
    assert worker.work(0.0) == 0.0


def test_a_missing_extra_is_named_before_anything_runs(bench, monkeypatch):
    monkeypatch.setattr(bench, "find_spec", lambda name: None)
    monkeypatch.setattr(sys, "argv", [SCRIPT, "part=speed"])
    with pytest.raises(UserError, match=r"pip install -e '\.\[bench\]'"):
        bench.main()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["part=sped"], "speed"),
        (["part=profile"], "all"),
        (["rounds=0"], "rounds is 1 to 100, not 0"),
        (["limit=0.5"], "limit is 1 to 1000, not 0.5"),
        (["target_progress=2"], "target_progress is -1 to 1, not 2"),
        (["thread=1"], "threads"),
        (["num_steps=100"], "800 rows, is no multiple of the batch of 256"),
        (["record=true", "quick=true"], "leave out quick"),
    ],
)
def test_wrong_settings_are_explained(tmp_path, arguments, message):
    done = command(SCRIPT, *arguments, cwd=tmp_path, expect=2)
    assert message in done.stderr and not list(tmp_path.iterdir())


def test_a_part_is_kept_as_soon_as_it_has_ended(tmp_path, monkeypatch):
    @dataclass
    class Settings:
        record: bool = True
        threads: int = 1
        run_root: str = str(tmp_path)

    def breaks(settings, run):
        raise RuntimeError("hours later")

    kept = {}
    monkeypatch.setattr(benches, "write_record", lambda name, **what: kept.update({name: what}))
    monkeypatch.setattr("sys.argv", ["x", "record=true", "name=a b", f"run_root={tmp_path}"])
    parts = {
        "one": lambda settings, run: ({"a": 1}, {"x": 1}),
        "two": lambda settings, run: ({"b": 2}, {"y": 2}),
        "three": breaks,
    }
    names = {"one": "first", "two": "first", "three": "second"}
    with pytest.raises(RuntimeError, match="hours later"):
        benches.measure("bench_ppo", parts, Settings(), names)
    assert list(kept) == ["first"]
    assert kept["first"]["metrics"] == {"a": 1, "b": 2}
    assert kept["first"]["details"] == {"one": {"x": 1}, "two": {"y": 2}}
    assert kept["first"]["command"] == "python scripts/bench_ppo.py record=true 'name=a b'"
