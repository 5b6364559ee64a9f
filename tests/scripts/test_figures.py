"""Pictures come from records alone, the same each time; what has no record yet is told."""

import json

import pytest
import torch
from PIL import Image

from common.files import read_json
from envs.racing import ObservationSpec
from experiments.report.figures import DPI, WIDTH
from experiments.report.published import PUBLISHED
from ppo import checkpoint
from ppo.config import PolicyConfig
from ppo.policy import ActorCritic
from scripts import figures
from tests.commands import command, last_line
from tests.experiments.report.small_records import write_speeds, write_training

SCRIPT = "scripts/figures.py"
DRAWN = "curves,scores,speed"


def test_every_picture_is_drawn_the_same_each_time(tmp_path):
    records = tmp_path / "records"
    write_training(records, "carracing")
    write_training(records, "drive", seeds=1, env="race")
    write_speeds(records)
    for out in ("first", "second"):
        done = command(SCRIPT, f"only={DRAWN}", f"records={records}", f"out={out}", cwd=tmp_path)
        assert last_line(done) == {"drawn": DRAWN, "skipped": "nothing"}
    for name in DRAWN.split(","):
        first, second = (tmp_path / out / f"{name}.png" for out in ("first", "second"))
        assert first.read_bytes() == second.read_bytes()
        with Image.open(first) as picture:
            assert abs(picture.width - WIDTH * DPI) <= 1
            assert len(picture.convert("L").getcolors()) > 20  # not an empty page


def test_what_has_no_record_is_skipped_and_told(tmp_path):
    (tmp_path / "records").mkdir()
    done = command(SCRIPT, f"only={DRAWN}", "records=records", "out=out", cwd=tmp_path)
    assert last_line(done) == {"drawn": "nothing", "skipped": DRAWN}
    assert "speed: skipped, no record speed: python scripts/bench_env.py" in done.stdout
    assert not (tmp_path / "out").exists()


def test_only_drives_in_the_real_carracing_stand_beside_published_ones(tmp_path):
    write_training(tmp_path / "records", "carracing", env="carracing")
    done = command(SCRIPT, "only=scores", "records=records", "out=out", cwd=tmp_path)
    assert "not judged in the real CarRacing-v3" in done.stdout
    real = {"settings": {"env": "gymnasium_carracing"}, "seed": 2, "native_return": [1.0, 2.0]}
    write_training(tmp_path / "records", "carracing", env="carracing", evaluations=[real])
    done = command(SCRIPT, "only=scores", "records=records", "out=out", cwd=tmp_path)
    assert last_line(done)["drawn"] == "scores"


def test_scores_over_unequal_tracks_are_not_drawn_as_one(tmp_path):
    write_training(tmp_path / "records", "carracing")
    path = tmp_path / "records" / "carracing.json"
    record = read_json(path)
    record["details"]["seeds"][1]["tracks"]["native_return"].pop()
    path.write_text(json.dumps(record))
    done = command(SCRIPT, "only=scores", "records=records", "out=out", cwd=tmp_path)
    assert last_line(done)["skipped"] == "scores" and "different numbers of tracks" in done.stdout


def test_speed_without_training_says_so(tmp_path):
    write_speeds(tmp_path / "records")
    (tmp_path / "records" / "ppo_speed.json").unlink()
    done = command(SCRIPT, "only=speed", "records=records", "out=out", cwd=tmp_path)
    assert last_line(done)["drawn"] == "speed" and "no record ppo_speed" in done.stdout


@pytest.mark.parametrize(
    ("argument", "message"),
    [("only=curve", "not 'curve'"), ("records=nowhere", "nowhere: no such directory")],
)
def test_mistakes_are_explained(tmp_path, argument, message):
    done = command(SCRIPT, argument, f"out={tmp_path}/out", cwd=tmp_path, expect=2)
    assert message in done.stderr and not list(tmp_path.iterdir())


def test_a_still_of_the_driver(tmp_path, monkeypatch):
    spec = ObservationSpec(size=64, grey=True, frame_stack=2, action_repeat=4)
    network = PolicyConfig(channels=(4, 8), kernels=(8, 4), strides=(8, 4), hidden=(16,))
    torch.manual_seed(0)
    driver = tmp_path / "race.pt"
    monkeypatch.setattr(figures, "DRIVER", driver)
    monkeypatch.setattr(figures, "DRIVE_SECONDS", 1)
    with pytest.raises(figures.Skipped, match=r"no driver race\.pt"):
        figures.drive(tmp_path, tmp_path / "drive.png")
    checkpoint.save(driver, ActorCritic(spec, network).state_dict(), spec, network, {})
    figures.drive(tmp_path, tmp_path / "drive.png")
    with Image.open(tmp_path / "drive.png") as still:
        assert still.size == (1280, 720)


def test_published_numbers_name_their_source():
    assert all(one.source.startswith("https://") and one.sd > 0 for one in PUBLISHED)
