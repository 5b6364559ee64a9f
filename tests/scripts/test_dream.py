"""Dreams: a scripted one becomes a film, the same again, and what is missing is said."""

import av
import numpy as np
import pytest
import torch

from replay import DataSet
from rssm import WorldModel, checkpoint
from rssm.config import HeadConfig, ModelConfig, RSSMConfig
from rssm.data import Reader
from tests.commands import command, last_line
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
