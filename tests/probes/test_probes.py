"""Probes from end to end, on real driving and a small untrained model."""

import dataclasses
import json
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from common.errors import UserError
from common.files import to_plain
from probes import RULES, ProbeConfig, run_probe
from probes.bundle import Thresholds, judge
from probes.clips import ClipRule, find_clips, listing
from probes.judge import camera_motion, follow
from probes.runs import Settings
from probes.runs import judge as judge_all
from replay import DataSet
from rssm import WorldModel, checkpoint
from rssm.config import HeadConfig, ModelConfig, RSSMConfig
from rssm.data import Reader
from tests.probes.recorded import record

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("speed", "progress_delta", "steer", "yaw_rate", "corner_angle", "lateral_offset")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    record(root, "PROBE", "probe", 2400)
    record(root, "D", "train", 2400)
    return root


@pytest.fixture(scope="module")
def saved(root, tmp_path_factory):
    torch.manual_seed(0)
    network = RSSMConfig(channels=(4, 8), deter=16, stoch=4, hidden=16, head_units=16)
    model = WorldModel(ModelConfig(network, HeadConfig(NAMES, off_track=True)))
    model.heads.set_statistics(Reader(DataSet(root, "D", "train"), NAMES, True).statistics())
    path = tmp_path_factory.mktemp("model") / "toy.pt"
    checkpoint.save(path, model, {"dataset": "D"})
    return path


@pytest.fixture(scope="module")
def data(root):
    return DataSet(root, "PROBE", "probe")


TURNS = ClipRule(turn=(0.4, 100.0), speed=10.0, clips=12, least=4)


def test_clips_fit_their_rule_and_spread(data):
    clips = find_clips(data, TURNS, 20, 20)
    assert 4 <= len(clips) <= 12
    heading, first = data.column("telemetry/heading"), data.column("is_first")
    for clip in clips:
        turned = np.unwrap(heading[clip.start + 19 : clip.start + 40])
        assert abs(turned[-1] - turned[0]) >= 0.4
        assert clip.turn == pytest.approx(turned[-1] - turned[0], abs=1e-3)
        assert not first[clip.start + 1 : clip.start + 40].any()
        assert data.column("telemetry/speed")[clip.start + 20 : clip.start + 40].mean() >= 10
    places = sorted(clip.start for clip in clips)
    assert all(b - a >= 40 for a, b in pairwise(places))
    assert len({clip.track_seed for clip in clips}) >= 3
    assert find_clips(data, TURNS, 20, 20) == clips
    told = listing(clips, TURNS, data)
    assert told["tracks"] == len({c.track_seed for c in clips}) and len(told["hash"]) == 64
    with pytest.raises(UserError, match=r"only .* windows of 40 rows fit the rule"):
        find_clips(data, dataclasses.replace(TURNS, turn=(50.0, 60.0)), 20, 20)


def test_a_future_depends_on_the_context_and_the_actions_alone(saved, data):
    import rssm

    model = rssm.load_world_model(saved)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(
                0.05 * torch.randn_like(parameter, memory_format=torch.contiguous_format)
            )
    clips = find_clips(data, TURNS, 20, 20)[:4]
    one = follow(model, data, clips, 20, 20)
    assert one.imagined.shape == one.real.shape == (4, 20, 96, 96, 3)
    assert one.pose.shape == (4, 21, 3)
    np.testing.assert_array_equal(one.recorded["speed"].shape, (4, 20))
    window = data.window(clips[1].start, 40, ["observation", "telemetry/speed"])
    np.testing.assert_array_equal(one.real[1], window["observation"][20:])
    np.testing.assert_array_equal(one.recorded["speed"][1], window["telemetry/speed"][20:])
    alone = follow(model, data, clips[1:2], 20, 20)
    apart = alone.imagined[0].astype(int) - one.imagined[1]
    assert np.abs(apart).max() <= 1  # another batch rounds differently
    assert (one.other != one.imagined).any()
    several = follow(model, data, clips, 20, 20, samples=6)
    np.testing.assert_array_equal(several.imagined, one.imagined)
    apart = np.abs(several.predicted["speed"] - one.predicted["speed"])
    assert apart.max() > 0  # a mean of other futures too


def test_real_frames_show_their_own_motion(saved, data):
    import rssm
    from probes.camera import PictureCamera

    clips = find_clips(data, TURNS, 20, 20)[:4]
    futures = follow(rssm.load_world_model(saved), data, clips, 20, 20)
    camera = PictureCamera.of(data.attributes.camera, 96)
    read = camera_motion(camera, futures.context[:, -1], futures.real, futures.pose)
    table = read.per_clip()
    assert np.median(table["yaw_slope"]) == pytest.approx(1, abs=0.1)
    assert np.median(table["forward_slope"]) == pytest.approx(1, abs=0.15)
    still = np.repeat(futures.context[:, -1:], 20, axis=1)
    frozen = camera_motion(camera, futures.context[:, -1], still, futures.pose).per_clip()
    assert np.abs(frozen["yaw_slope"]).max() < 0.05
    assert np.abs(frozen["forward_slope"]).max() < 0.05


def test_a_probe_leaves_numbers_pictures_and_a_verdict(saved, data, root, tmp_path, monkeypatch):
    import rssm

    monkeypatch.setitem(RULES, "sharp_turn", TURNS)
    config = ProbeConfig(context=20, horizon=20, horizons=(5, 20), data_root=str(root), clips=4)
    result = run_probe("sharp_turn", rssm.load_world_model(saved), config, tmp_path, "toy")
    assert not result.passed and result.verdict["ssim_above_repeat_last"] is False
    pictures = result.numbers["pictures"]
    assert pictures["psnr"]["true_motion"]["mean"] > pictures["psnr"]["repeat_last"]["mean"]
    assert len(result.curves["ssim"]["model"]) == 20
    speed = result.numbers["telemetry"]["speed@5"]
    assert set(speed["beats"]) == {"persistence", "blind"}
    assert speed["blind"]["corr"]["mean"] > 0.5
    assert set(result.per_clip) >= {"ssim", "psnr", "yaw_slope", "speed@5", "reward@20"}
    json.dumps(result.to_dict())
    assert (tmp_path / "sharp_turn.png").stat().st_size > 10_000
    assert (tmp_path / "sharp_turn.mp4").stat().st_size > 10_000
    assert (tmp_path / "sharp_turn_frames.png").stat().st_size > 10_000
    with pytest.raises(UserError, match="sharp_turn"):
        run_probe("sharp_trun", rssm.load_world_model(saved), config, tmp_path, "toy")


def test_a_judge_says_whether_its_clips_are_the_committed_ones(data, tmp_path, monkeypatch):
    from common import records
    from probes import clips

    told = listing(find_clips(data, TURNS, 20, 20), TURNS, data)
    monkeypatch.setattr(clips, "read_record", lambda name: records.read_record(name, tmp_path))
    assert clips.committed("sharp_turn", told) is None
    made = {"command": "", "settings": {}, "metrics": {}, "directory": tmp_path}
    records.write_record(clips.CLIPS, details={"sharp_turn": told}, **made)
    fewer = dataclasses.replace(TURNS, clips=4)
    told = listing(find_clips(data, fewer, 20, 20), fewer, data)
    assert len(told["clips"]) == 4 and clips.committed("sharp_turn", told) is True
    told["clips"][0]["row"] += 5
    assert clips.committed("sharp_turn", told) is False
    gentler = dataclasses.replace(TURNS, turn=(0.3, 100.0))
    told = listing(find_clips(data, gentler, 20, 20), gentler, data)
    assert clips.committed("sharp_turn", told) is None


def test_what_clips_say_without_a_model_is_found_once(saved, root, tmp_path, monkeypatch):
    import rssm
    from probes import bundle

    monkeypatch.setitem(RULES, "sharp_turn", TURNS)
    config = ProbeConfig(
        context=20, horizon=20, horizons=(5,), data_root=str(root), clips=4, film=False
    )
    model, memory = rssm.load_world_model(saved), {}
    first = run_probe("sharp_turn", model, config, tmp_path, "toy", memory)
    monkeypatch.setattr(bundle, "judge_baselines", None)
    monkeypatch.setattr(bundle, "fit_blind", None)
    again = run_probe("sharp_turn", model, config, tmp_path, "toy", memory)
    assert to_plain(again.to_dict()) == to_plain(first.to_dict())  # a NaN differs from itself
    with pytest.raises(TypeError):  # other clips are not remembered
        fewer = dataclasses.replace(config, clips=3)
        run_probe("sharp_turn", model, fewer, tmp_path, "toy", memory)


def test_a_damaged_training_set_teaches_nothing(saved, root, tmp_path, monkeypatch):
    import rssm

    shutil.copytree(root, tmp_path / "data")
    shard = next((tmp_path / "data" / "D" / "train").glob("*.h5"))
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    monkeypatch.setitem(RULES, "sharp_turn", TURNS)
    config = ProbeConfig(
        context=20, horizon=20, horizons=(5,), data_root=str(tmp_path / "data"), clips=4, film=False
    )
    with pytest.raises(UserError, match=rf"{shard.name} is not what was written .* \(the blind"):
        run_probe("sharp_turn", rssm.load_world_model(saved), config, tmp_path, "toy")


def test_a_verdict_names_each_criterion():
    camera = {"imagined": {"yaw_slope": {"mean": 0.95}, "forward_slope": {"mean": 0.5},
                           "yaw_final_share": {"mean": 0.05}}}  # fmt: skip
    curves = {
        "ssim": {"model": [0.9, 0.8], "repeat_last": [0.9, 0.7], "constant_motion": [0.5] * 2}
    }
    told = judge({"camera": camera, "telemetry": {}}, curves, Thresholds(), 15)
    assert told == {
        "yaw_slope": True, "forward_slope": False, "yaw_final_error": True,
        "ssim_above_repeat_last": False, "ssim_above_constant_motion": True,
    }  # fmt: skip


def test_missing_data_leaves_no_run_directory(saved, root, tmp_path):
    """`all` needs NOVEL last of all; that it is missing is said before anything is judged."""
    settings = Settings(
        checkpoint=str(saved), data_root=str(root), run_root=str(tmp_path / "runs"), quick=True
    )
    with pytest.raises(UserError, match=r"collect_replay\.py dataset=NOVEL"):
        judge_all(list(RULES), settings)
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_the_command_judges_a_checkpoint(saved, root, tmp_path):
    command = [
        sys.executable, "-m", "probes", "faithfulness,straight", f"checkpoint={saved}",
        f"data_root={root}", f"run_root={tmp_path}", "name=./a", "clips=3", "context=20",
        "horizon=20", "horizons=[5,20]",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "faithfulness_passed=false" in done.stdout.splitlines()[-1]
    assert (tmp_path / "a" / "faithfulness.json").is_file()
    assert (tmp_path / "a" / "straight.json").is_file()
    for arguments, message in (
        (["sharp"], "name a probe"),
        (["straight,sharp"], "not 'sharp'"),
        (["sharp_turn"], "name a world model"),
        (["sharp_turn", f"checkpoint={saved}", "clip=3"], "did you mean"),
    ):
        wrong = subprocess.run(
            [sys.executable, "-m", "probes", *arguments], cwd=ROOT, capture_output=True, text=True
        )
        assert wrong.returncode == 2 and message in wrong.stderr
