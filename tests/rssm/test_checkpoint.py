"""World-model checkpoints: what comes back, what is refused, what a warm start reports."""

import dataclasses
import pickle

import pytest
import torch

import rssm
from common.errors import UserError
from common.torch.checkpoint import write_checkpoint
from rssm import checkpoint
from rssm.world_model import WorldModel
from tests.rssm.toys import DISCRETE, NETWORK, batch, config, model


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "final.pt"
    world = model()
    world.heads.set_statistics({"reward": (1.0, 2.0), "speed": (3.0, 4.0), "steer": (5.0, 6.0)})
    checkpoint.save(path, world, {"updates": 7})
    return path


def test_a_loaded_model_is_the_saved_one(path):
    world = rssm.load_world_model(path)
    assert world.about == {"updates": 7} and not world.training
    assert world.heads.std.tolist() == [2.0, 4.0, 6.0]
    rows, original = batch(), model()
    noise = original.core.latent.noise((2, 6), torch.Generator().manual_seed(0))
    arguments = rows.observation, rows.action, rows.is_first
    one = original.observe(*arguments, noise=noise)
    other = world.observe(*arguments, noise=noise)
    assert (one.state.deter == other.state.deter).all()
    assert (original.decode(one.state) == world.decode(other.state)).all()


@pytest.mark.parametrize("network", [NETWORK, DISCRETE])
@pytest.mark.parametrize("regression", ["symlog", "twohot"])
def test_every_kind_of_model_survives(tmp_path, network, regression):
    torch.manual_seed(0)
    world = WorldModel(config(network, ("yaw_rate",), False, regression=regression))
    checkpoint.save(tmp_path / "x.pt", world, {})
    back = rssm.load_world_model(tmp_path / "x.pt")
    features = torch.randn(3, network.deter + network.latent)
    predicted = back.heads.predict(features).by_head()
    for name, value in world.heads.predict(features).by_head().items():
        assert (predicted[name] == value).all()


def test_what_is_committed_has_half_the_size_and_the_same_predictions(tmp_path, path):
    checkpoint.export(tmp_path / "small.pt", path)
    world, small = rssm.load_world_model(path), rssm.load_world_model(tmp_path / "small.pt")
    assert small.about == {"updates": 7} and small.heads.std.tolist() == [2.0, 4.0, 6.0]
    assert all(p.dtype == torch.float32 for p in small.parameters())
    stored = checkpoint.load(tmp_path / "small.pt")["weights"]
    assert {stored[name].dtype for name, _ in world.named_parameters()} == {torch.float16}
    features = torch.randn(3, NETWORK.deter + NETWORK.latent)
    predicted = small.heads.predict(features).by_head()
    for name, value in world.heads.predict(features).by_head().items():
        torch.testing.assert_close(predicted[name], value, rtol=0.01, atol=0.01)


def test_foreign_and_damaged_files_are_refused(tmp_path, path):
    with pytest.raises(UserError, match=r"no such checkpoint; python train_world_model\.py makes"):
        rssm.load_world_model(tmp_path / "absent.pt")
    (tmp_path / "x.pt").write_bytes(pickle.dumps({"format": checkpoint.FORMAT}))
    with pytest.raises(UserError, match="not a readable checkpoint"):
        rssm.load_world_model(tmp_path / "x.pt")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "y.pt").write_bytes(data)
    with pytest.raises(UserError, match="not a readable checkpoint"):
        rssm.load_world_model(tmp_path / "y.pt")
    write_checkpoint(tmp_path / "driver.pt", {"format": "dreamracer/ppo/1", "about": {}})
    with pytest.raises(UserError, match=r"driver\.pt is a driver, of .*; here a world model"):
        rssm.load_world_model(tmp_path / "driver.pt")
    with pytest.raises(UserError, match="format"):
        rssm.load_world_model("experiments/checkpoints/race.pt")


def test_weights_that_are_not_finite_are_refused(tmp_path):
    world = model()
    with torch.no_grad():
        world.core.gates.weight[0, 0] = float("nan")
    checkpoint.save(tmp_path / "x.pt", world, {})
    with pytest.raises(UserError, match="not finite"):
        rssm.load_world_model(tmp_path / "x.pt")


def test_a_warm_start_tells_every_weight_that_it_did_not_copy(path):
    torch.manual_seed(1)
    network = dataclasses.replace(NETWORK, head_units=24)
    bigger = WorldModel(config(network, ("speed", "yaw_rate"), True))
    before = {name: tensor.clone() for name, tensor in bigger.state_dict().items()}
    report = checkpoint.warm_start(bigger, path)
    source, after = model().state_dict(), bigger.state_dict()
    assert "core.gates.weight" in report.copied
    assert all((after[name] == source[name]).all() for name in report.copied)
    assert any("heads.reward.0.weight (16, 20) (24, 20)" in line for line in report.mismatched)
    changed = {name for name in after if (after[name] != before[name]).any()}
    assert changed <= set(report.copied)
    assert bigger.heads.mean.tolist() == [0, 0, 0]  # targets' statistics stay those of the data
    assert not report.missing and not report.unused
    lines = report.lines()
    assert lines[0] == f"warm start: {len(report.copied)} weights copied"
    assert len(lines) == 1 + len(report.mismatched)


def test_a_warm_start_without_telemetry_heads_names_them(tmp_path):
    torch.manual_seed(0)
    checkpoint.save(tmp_path / "e3.pt", WorldModel(config(telemetry=(), off=False)), {})
    report = checkpoint.warm_start(model(), tmp_path / "e3.pt")
    assert {name.split(".")[1] for name in report.missing} == {"measure"}
    assert not report.mismatched


def test_a_checkpoint_of_the_first_format_is_read():
    """P5.pt, which is committed, is of that format."""
    content = torch.load("experiments/checkpoints/P5.pt", weights_only=True)
    assert content["format"] == checkpoint.FIRST_FORMAT
    world = rssm.load_world_model("experiments/checkpoints/P5.pt")
    assert world.config.heads.telemetry == tuple(content["heads"]["telemetry"])
    assert world.config.heads.off_track and world.about["dataset"] == "D4_main"
    stored = content["weights"]["heads.proceed.3.bias"].float()
    assert (world.heads.continuation[3].bias == stored).all()
