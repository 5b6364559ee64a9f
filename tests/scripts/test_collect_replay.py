"""The command that collects data sets, on small recipes, and the one that exports them."""

import fcntl
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from common.errors import UserError
from envs.racing import EnvConfig, ObservationSpec, RacingVectorEnv
from envs.racing.drivers import ActionNoise, PerTick
from experiments.data.recipes import RECIPES, TRACKS, Recipe, Selection, Source
from ppo import checkpoint
from ppo.config import PolicyConfig
from ppo.evaluate import load_policy
from ppo.policy import ActorCritic
from replay import DataSet

ROOT = Path(__file__).resolve().parents[2]
SPEC = ObservationSpec(size=96, grey=True, frame_stack=2, action_repeat=4)
NETWORK = PolicyConfig(channels=(4, 8), kernels=(8, 4), strides=(8, 4), hidden=(16,))

EARLY = Source("ppo", "ppo", noise=0.35, early=True)
SMALL = {
    "D1": Recipe("", {"train": 120, "val": 24}, (EARLY,), length=30, warmup=20),
    "D2": Recipe("", {"train": 60, "val": 20}, (Source("near_edge", "near_edge"),), length=10),
    "D3_diverse": Recipe("", parts=("D1", "D2")),
    "D6b": Recipe("", parts=("D1",), selection=Selection("D2", 0.5, corner=0.0, off_track=1.0)),
    "PROBE": Recipe("", {"probe": 60}, (Source("near_edge", "near_edge"),), length=10),
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A checkpoint of an untrained policy."""
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("policy") / "policy.pt"
    checkpoint.save(path, ActorCritic(SPEC, NETWORK).state_dict(), SPEC, NETWORK, {})
    return path


def script(name: str):
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def run(monkeypatch, tmp_path, capsys):
    """Runs a script in this process; returns its last line as a dict."""

    def _run(name: str, *arguments: str) -> dict[str, str]:
        monkeypatch.setattr(sys, "argv", [name, f"root={tmp_path / 'data'}", *arguments])
        script(name).main()
        last = capsys.readouterr().out.strip().splitlines()[-1]
        return dict(pair.split("=", 1) for pair in last.split())

    return _run


@pytest.fixture
def collect(run, monkeypatch, trained):
    for name, plan in SMALL.items():
        monkeypatch.setitem(RECIPES, name, plan)
    return lambda dataset, *rest: run(
        "collect_replay", f"dataset={dataset}", f"checkpoint={trained}", *rest
    )


def test_another_processor_records_the_same_rows(tmp_path):
    """The libraries below torch and numpy compute with other instructions, which round otherwise:
    32 bits of the committed policy do differ."""
    command = ["dataset=D2", "factor=0.02"]
    old = {
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "MKL_CBWR": "COMPATIBLE",
        "ATEN_CPU_CAPABILITY": "default",
        "NPY_DISABLE_CPU_FEATURES": "AVX512F AVX512CD AVX512_SKX AVX2 FMA3",
    }
    recorded = []
    for name, settings in {"new": {}, "old": old}.items():
        done = subprocess.run(
            [sys.executable, "scripts/collect_replay.py", *command, f"root={tmp_path / name}"],
            cwd=ROOT, env=os.environ | settings, capture_output=True, text=True, timeout=600,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        data = DataSet(tmp_path / name, "D2", "train")
        recorded.append(data.windows(np.array([0]), data.rows, ["observation", "action"]))
    assert all(np.array_equal(recorded[0][key], recorded[1][key]) for key in recorded[0])


def test_a_data_set_has_its_frames_both_ways_on_tracks_of_its_split(collect, tmp_path):
    last = collect("D1")
    assert (last["rows"], last["data"]) == ("144", str(tmp_path / "data" / "D1"))
    for split, (first, end) in {"train": (10_000, 999_999), "val": (1_000, 1_999)}.items():
        data = DataSet(tmp_path / "data", "D1", split)
        episodes = data.episodes
        assert data.rows == SMALL["D1"].frames[split]
        for direction in (0, 1):
            half = episodes[episodes["direction"] == direction]
            assert half["length"].sum() == data.rows // 2
        assert (episodes["track_seed"] >= first).all() and (episodes["track_seed"] <= end).all()
        assert set(episodes["scenario"]) == {"ppo"}
        assert data.attributes.policy.startswith("sha256:")
        assert data.attributes.camera["car_row"] == 72
    summary = json.loads((tmp_path / "data" / "D1" / "summary.json").read_text())
    train = summary["splits"]["train"]
    assert (train["rows"], train["all"]["clockwise"]) == (120, 0.5)
    assert sum(train["all"]["corner_histogram"]) == pytest.approx(1)
    picture = cv2.imread(str(tmp_path / "data" / "D1" / "contact.png"))
    assert picture.shape == (18 + 98, 12 * 98, 3) and picture.std() > 10


def test_an_early_policy_needs_no_noise_to_drive_worse(collect, trained, tmp_path):
    for place, rest, noise in (("a", [], "0.35"), ("b", [f"early={trained}"], "0.1")):
        collect("D1", "factor=0.1", f"root={tmp_path / place}", *rest)
        policy = DataSet(tmp_path / place, "D1", "train").attributes.policy
        assert policy.endswith(f" noise={noise}")


def test_only_what_is_missing_is_collected(collect, tmp_path):
    def index() -> bytes:
        return (tmp_path / "data" / "D2" / "train" / "index.jsonl").read_bytes()

    collect("D2", "factor=0.5")
    half = index()
    assert collect("D2")["rows"] == "80"
    full = index()
    assert full.startswith(half) and len(full) > len(half)
    tracks = DataSet(tmp_path / "data", "D2", "train").episodes["track_seed"]
    assert len(set(tracks)) == len(tracks)  # the second half does not repeat the first
    collect("D2")
    assert index() == full


def test_a_data_set_keeps_its_seed_and_has_one_collector(collect, tmp_path):
    collect("D2", "factor=0.5")
    with pytest.raises(UserError, match="D2 was collected with seed 1"):
        collect("D2", "seed=2")
    with open(tmp_path / "data" / "D2" / ".collecting", "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="being collected by another process"):
            collect("D2")
    assert collect("D2")["rows"] == "80"


def test_a_selection_says_that_its_source_has_grown(collect):
    collect("D6b", "factor=0.6")
    with pytest.raises(UserError, match="was chosen from a smaller"):
        collect("D6b", "factor=3")


def test_a_seed_makes_the_same_data_set_again(collect, tmp_path):
    for place in ("a", "b"):
        collect("D2", f"root={tmp_path / place}")
    collect("D2", f"root={tmp_path / 'c'}", "seed=2")
    hashes = [DataSet(tmp_path / place, "D2", "train").window(0, 60) for place in "abc"]
    for name, array in hashes[0].items():
        assert np.array_equal(array, hashes[1][name])
    assert not np.array_equal(hashes[0]["observation"], hashes[2]["observation"])


def test_data_sets_made_of_others_collect_them_first(collect, tmp_path):
    assert collect("D3_diverse")["rows"] == str(144 + 80)
    again = DataSet(tmp_path / "data", "D3_diverse", "train")
    assert set(again.episodes["scenario"]) == {"ppo", "near_edge"}
    assert collect("D6b")["rows"] == str(144 + 30 + 10)
    assert collect("D6b")["rows"] == str(144 + 30 + 10)


def test_probe_tracks_are_all_different(collect, tmp_path):
    assert collect("PROBE")["rows"] == "60"
    tracks = DataSet(tmp_path / "data", "PROBE", "probe").episodes["track_seed"]
    assert len(set(tracks)) == len(tracks) == 6
    assert ((tracks >= 100) & (tracks <= 499)).all()


def test_a_data_set_goes_to_minari(collect, run, tmp_path, monkeypatch):
    pytest.importorskip("minari")
    collect("D2")
    last = run("export_minari", "dataset=D2", "split=val", f"out={tmp_path / 'minari'}")
    assert last == {"episodes": "2", "steps": "18", "id": "racing/d2-val-v0"}
    import minari

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    recovered = minari.load_dataset("racing/d2-val-v0").recover_environment()
    observation, _ = recovered.reset(seed=1)
    assert observation.shape == (96, 96, 3)
    options = recovered.unwrapped.spec.kwargs
    assert options["preset"] == "race" and options["endings"]["finish"] is False
    recovered.close()


def test_the_policy_sees_from_ticks_what_it_was_trained_on(trained):
    """Driven tick by tick, it goes where the engine's own repeat, grey and stack take it."""
    policy, decisions = load_policy(trained), 15
    places = []
    for repeat in (1, SPEC.action_repeat):
        grey = {"grey": True, "frame_stack": 2, "action_repeat": repeat} if repeat > 1 else {}
        env = RacingVectorEnv(2, EnvConfig(**grey), seed=1)
        driver = ActionNoise(PerTick(policy), 0.0) if repeat == 1 else policy
        carry = driver.initial(2)
        observation, info = env.reset(seed=20_000)
        is_first = np.ones(2, bool)
        for _ in range(decisions * SPEC.action_repeat // repeat):
            action, carry = driver.act(carry, observation, is_first)
            observation, _, _, _, info = env.step(action)
            is_first = np.zeros(2, bool)
        places.append(np.stack([info["x"], info["y"], info["heading"]]))
        env.close()
    np.testing.assert_allclose(*places, atol=0.02)


def test_recipes_add_up():
    for name, plan in RECIPES.items():
        assert set(plan.frames) <= set(TRACKS), name
        if plan.sources:
            assert sum(source.share for source in plan.sources) == pytest.approx(1), name
            scenarios = [source.scenario for source in plan.sources]
            assert len(set(scenarios)) == len(scenarios), name
        else:
            assert plan.parts, name
    frames = {name: plan.frames for name, plan in RECIPES.items()}
    assert frames["D4_main"] == {"train": 30_000, "val": 5_000}
    assert frames["D1"] == {"train": 10_000, "val": 2_000}  # 5,000 / 1,000 a direction
    probe = RECIPES["PROBE"]
    assert probe.frames["probe"] / probe.length >= 100  # episodes, each on a track of its own
