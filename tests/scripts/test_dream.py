"""Dreams: a scripted one becomes a film, the same again, and what is missing is said."""

import importlib.util
import sys

import av
import numpy as np
import pytest
import torch

from replay import DataSet
from rssm import WorldModel, checkpoint
from rssm.config import HeadConfig, ModelConfig, RSSMConfig
from rssm.data import Reader
from tests.commands import ROOT, command, last_line
from tests.probes.recorded import record

SCRIPT = "scripts/dream.py"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A directory with data and a run that holds an untrained model."""
    place = tmp_path_factory.mktemp("place")
    record(place / "data", "PROBE", "probe", 800)
    torch.manual_seed(0)
    network = RSSMConfig(channels=(4, 8), deter=16, stoch=4, hidden=16, head_units=16)
    model = WorldModel(ModelConfig(network, HeadConfig(("speed",), off_track=False)))
    reader = Reader(DataSet(place / "data", "PROBE", "probe"), ("speed",), False)
    model.heads.set_statistics(reader.statistics())
    checkpoint.save(place / "run" / "checkpoints" / "final.pt", model, {})
    return place


@pytest.fixture
def dreaming(place, monkeypatch):
    """The script as a module, and a dream of it whose model predicts speed and steer."""
    spec = importlib.util.spec_from_file_location("dream", ROOT / SCRIPT)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "dream", module)
    spec.loader.exec_module(module)
    network = RSSMConfig(channels=(4, 8), deter=16, stoch=4, hidden=16, head_units=16)
    model = WorldModel(ModelConfig(network, HeadConfig(("speed", "steer"), off_track=False)))
    data = DataSet(place / "data", "PROBE", "probe")
    model.heads.set_statistics(Reader(data, ("speed", "steer"), False).statistics())
    return module, module.Dream(model, data, module.Settings("x", quick=True))


def frames(path):
    with av.open(str(path)) as film:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in film.decode(video=0)])


def test_a_scripted_dream_is_a_film(place):
    values = last_line(command(SCRIPT, "checkpoint=run", "film=true", "quick=true", cwd=place))
    assert values["ticks"] == "25"
    film = frames(place / values["video"])
    assert film.shape == (50, 576, 836, 3)  # half of them real driving
    real, imagined = film[:25, :, :576], film[25:, :, :576]
    assert real.std() > 10
    assert np.abs(real[-1].astype(int) - imagined[-1]).mean() > 5  # an untrained model's picture

    again = last_line(command(SCRIPT, "checkpoint=run", "film=true", "quick=true", cwd=place))
    # The encoder itself is not exact: what it makes of noisy frames differs from time to time.
    again = frames(place / again["video"])
    assert np.abs(again.astype(int) - film).mean() < 3
    other = ("film=true", "quick=true", "start=1")
    other = frames(place / last_line(command(SCRIPT, "checkpoint=run", *other, cwd=place))["video"])
    assert np.abs(other[:25, :, :576].astype(int) - real).mean() > 6


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("checkpoint=run", "data_root=nowhere"), "nowhere"),
        (("checkpoint=nothing.pt",), "nothing.pt"),
        (("checkpoint=run", "script=loop"), "slalom, left, right, brake"),
    ],
)
def test_what_is_missing_is_said(place, arguments, told):
    done = command(SCRIPT, "film=true", "quick=true", *arguments, cwd=place, expect=2)
    assert told in done.stderr and "Traceback" not in done.stderr


def test_without_a_display_there_is_no_run(place, monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    done = command(SCRIPT, "checkpoint=run", "run_root=none", cwd=place, expect=2)
    assert "film=true" in done.stderr and not (place / "none").exists()


def test_the_command_and_the_angle_of_the_wheels_have_different_names(dreaming):
    module, dream = dreaming
    assert not any("PREDICTS" in line for line in module.column(dream))
    dream.step(np.float32([0.5, 0.25, 0.0]))
    assert {"speed", "steer"} <= dream.predictions.keys()
    labels = [line.rsplit("  ", 1)[0] for line in module.column(dream) if "  " in line]
    assert labels[:3] == ["steer", "gas", "brake"] and "wheel angle (rad)" in labels
    assert len(labels) == len(set(labels))
    assert module.column(dream)[1:4] == ["steer  +0.50", "gas  +0.25", "brake  +0.00"]


def test_keys_drive_the_dream(dreaming, monkeypatch):
    pygame = pytest.importorskip("pygame")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    module, dream = dreaming
    window = module.open_window((836, 576), "")[1]
    keys = [(3, pygame.K_UP), (5, pygame.K_a), (15, pygame.K_r)]
    ticks, actions = iter(range(100)), []

    def get():
        tick = next(ticks)
        return [pygame.event.Event(pygame.KEYDOWN, key=key) for when, key in keys if when == tick]

    step = dream.step
    monkeypatch.setattr(dream, "step", lambda action: (actions.append(action), step(action)))
    monkeypatch.setattr(pygame.event, "get", get)
    module.drive(dream, module.Settings("x", quick=True), pygame, window)
    steer, gas, brake = np.array(actions).T
    assert len(actions) == 25 and dream.episode == 1 and dream.ticks == 10
    assert not gas[:3].any() and (np.diff(gas[3:13]) > 0).all() and not brake.any()
    assert not steer[:5].any() and steer[13] < -0.9
    assert steer[15] == pytest.approx(-0.12) and gas[15] == pytest.approx(0.1)  # begun anew
