"""Videos are whole films of the evaluator's episodes, or they are not there at all."""

import itertools
import signal
import subprocess
import sys
from pathlib import Path

import av
import numpy as np
import pytest

from common.errors import UserError
from envs.racing import EnvConfig, ObservationSpec, RacingVectorEnv
from envs.racing.drivers import CentrelineDriver
from envs.racing.evaluate import evaluate
from envs.racing.show.dashboard import HEIGHT, VIEW_WIDTH, WIDTH, put_text, text_width
from envs.racing.show.video import movie, record_video

ROOT = Path(__file__).resolve().parents[4]
SEED = 3
TICKS = 40


class Scripted:
    """Accelerates in a gentle left bend, harder with every decision, and notes what it saw.

    Its carry is the number of its decisions.
    """

    def __init__(self, steer=-0.1, **spec):
        self.spec = ObservationSpec(**spec)
        self.steer = steer
        self.observations = []
        self.deterministic = []

    def initial(self, n, seeds=None):
        return np.zeros(n, np.int64)

    def act(self, carry, observation, is_first, deterministic=True):
        self.observations.append(observation.copy())
        self.deterministic.append(deterministic)
        count = np.where(is_first, 0, carry) + 1
        action = np.zeros((len(count), 3), np.float32)
        action[:, 0], action[:, 1] = self.steer, np.minimum(0.3 + 0.05 * count, 1.0)
        return action, count


def decoded(path):
    with av.open(str(path)) as film:
        return [frame.to_ndarray(format="rgb24").astype(int) for frame in film.decode(video=0)]


@pytest.fixture(scope="module")
def filmed(tmp_path_factory):
    policy = Scripted(grey=True, frame_stack=3, action_repeat=3)
    path = tmp_path_factory.mktemp("video") / "deep" / "drive.mp4"
    facts = record_video(policy, path, track_seed=SEED, max_ticks=TICKS, fps=25)
    return policy, path, facts, decoded(path)


def test_a_browser_can_play_it(filmed):
    _, path, facts, frames = filmed
    with av.open(str(path)) as film:
        stream = film.streams.video[0]
        assert stream.codec_context.name == "h264" and stream.codec_context.pix_fmt == "yuv420p"
        assert (stream.width, stream.height) == (VIEW_WIDTH + WIDTH, HEIGHT) == (1280, 720)
        assert stream.average_rate == 25
        assert len(film.streams) == 1
    # The start, every second tick, and a second of the last picture.
    assert facts["frames"] == len(frames) == 1 + TICKS // 2 + 25
    data = path.read_bytes()
    assert data[4:8] == b"ftyp" and data.index(b"moov") < data.index(b"mdat")


def test_the_picture_moves_and_then_stands(filmed):
    frames = filmed[3]
    driving, standing = frames[: 1 + TICKS // 2], frames[1 + TICKS // 2 :]
    view = np.s_[:, :VIEW_WIDTH]
    for one, two in itertools.pairwise(driving[5:]):
        assert np.abs(one[view] - two[view]).mean() > 1.0
    for one, two in itertools.pairwise(standing):
        assert np.abs(one - two).mean() < 0.5
    assert np.abs(driving[0] - standing[0])[:, VIEW_WIDTH:].mean() > 1.0


def test_the_pixels_that_the_policy_saw_are_in_it(filmed):
    policy, _, _, frames = filmed
    shown = frames[0][38 : 38 + 288, VIEW_WIDTH + 24 : VIEW_WIDTH + 24 + 288].mean(2)
    expected = policy.observations[0][0, -1].repeat(3, 0).repeat(3, 1)
    assert np.abs(shown - expected).mean() < 4.0


def test_the_policy_is_fed_as_in_training(filmed):
    policy = filmed[0]
    config = EnvConfig(grey=True, frame_stack=3, action_repeat=3, max_ticks=TICKS)
    env = RacingVectorEnv(1, config, split=None, track_seeds=[SEED], autoreset=False)
    observation, _ = env.reset()
    other = Scripted(grey=True, frame_stack=3, action_repeat=3)
    carry, is_first = other.initial(1), np.ones(1, bool)
    for observations in policy.observations:
        np.testing.assert_array_equal(observations, observation)
        action, carry = other.act(carry, observation, is_first)
        observation, is_first = env.step(action)[0], np.zeros(1, bool)
    assert len(policy.observations) == -(-TICKS // 3)
    assert all(policy.deterministic)
    env.close()


@pytest.mark.parametrize("env", ["race", "carracing"])
def test_the_facts_are_the_evaluators(env, tmp_path):
    facts = record_video(
        Scripted(), tmp_path / "v.mp4", env=env, track_seed=SEED, max_ticks=TICKS, fps=10
    )
    row = evaluate(Scripted(), [SEED], env=env, max_ticks=TICKS).rows[0]
    assert row["progress"] > 0.01
    for name in ("progress", "native_return", "ticks", "finished", "lap_time", "off_track_rate"):
        assert facts[name] == pytest.approx(row[name]), name
    assert facts["seconds"] == TICKS / 50
    assert len(decoded(tmp_path / "v.mp4")) == facts["frames"] == 1 + TICKS // 5 + 10


def test_a_driver_that_reads_telemetry_is_filmed(tmp_path):
    options = {"track_seed": SEED, "max_ticks": TICKS}
    facts = record_video(CentrelineDriver(repeat=3), tmp_path / "v.mp4", fps=10, **options)
    row = evaluate(CentrelineDriver(repeat=3), [SEED], max_ticks=TICKS).rows[0]
    assert facts["progress"] == pytest.approx(row["progress"]) and facts["progress"] > 0.01


@pytest.mark.parity
def test_the_real_carracing_gets_as_far_as_ours(tmp_path):
    pytest.importorskip("Box2D")
    results = [
        record_video(
            Scripted(steer=0.0), tmp_path / "v.mp4", env=env, track_seed=5, max_ticks=80, fps=1
        )
        for env in ("gymnasium_carracing", "carracing")
    ]
    real, ideal = results
    assert ideal["progress"] > 0.03 and ideal["off_track_rate"] == 0
    assert real["progress"] == pytest.approx(ideal["progress"], abs=0.005)
    assert real["native_return"] == pytest.approx(ideal["native_return"], abs=5)


@pytest.mark.parity
def test_the_real_carracing(tmp_path):
    pytest.importorskip("Box2D")
    options = {"env": "gymnasium_carracing", "track_seed": SEED, "max_ticks": 12, "fps": 10}
    policy = Scripted(grey=True, frame_stack=2, action_repeat=4)
    facts = record_video(policy, tmp_path / "v.mp4", **options)
    other = Scripted(grey=True, frame_stack=2, action_repeat=4)
    row = evaluate(other, [SEED], env="gymnasium_carracing", max_ticks=12).rows[0]
    for name in ("progress", "native_return", "ticks", "finished", "off_track_rate"):
        assert facts[name] == pytest.approx(row[name]), name
    np.testing.assert_array_equal(policy.observations, other.observations)
    frames = decoded(tmp_path / "v.mp4")
    assert len(frames) == facts["frames"] == 1 + 2 + 1 + 10
    assert np.abs(frames[0] - frames[3])[:, :VIEW_WIDTH].mean() > 1.0
    # CarRacing's own picture: its grass is brighter than ours, its indicators are black.
    assert ((frames[0][300:600, :VIEW_WIDTH] - (102, 204, 102)).__abs__().max(2) < 12).mean() > 0.2


def test_clockwise_and_further_options(tmp_path):
    config = EnvConfig(tracks="procedural", difficulty=0.2, width_scale=1.2, preset="race")
    observations = []
    for direction in ("ccw", "cw"):
        policy = Scripted(size=64, action_repeat=2)
        path = tmp_path / f"{direction}.mp4"
        record_video(policy, path, direction=direction, max_ticks=4, fps=10, config=config)
        observations.append(policy.observations)
    assert observations[0][0].shape == (1, 64, 64, 3)
    assert (observations[0][0] != observations[1][0]).any()


def test_a_failure_leaves_nothing_behind(tmp_path):
    class Failing(Scripted):
        def act(self, carry, observation, is_first, deterministic=True):
            if len(self.observations) == 5:
                raise RuntimeError("out of ideas")
            return super().act(carry, observation, is_first)

    target = tmp_path / "drive.mp4"
    with pytest.raises(RuntimeError, match="out of ideas"):
        record_video(Failing(), target, track_seed=SEED, max_ticks=TICKS)
    assert list(tmp_path.iterdir()) == []
    target.write_bytes(b"an older film")
    with pytest.raises(RuntimeError, match="out of ideas"):
        record_video(Failing(), target, track_seed=SEED, max_ticks=TICKS)
    assert [path.name for path in tmp_path.iterdir()] == ["drive.mp4"]
    assert target.read_bytes() == b"an older film"


def test_a_killed_writer_leaves_no_half_film(tmp_path):
    target = tmp_path / "drive.mp4"
    script = f"""
import os, signal, numpy as np
from envs.racing.show.video import movie
with movie({str(target)!r}, 50) as add:
    for i in range(200):
        add(np.random.default_rng(i).integers(0, 255, (720, 1280, 3), np.uint8))
        if i == 20:
            os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    assert not target.exists()
    # What it left is hidden, and shaped like what common.files cleans up.
    assert all(path.name.startswith(".drive.") for path in tmp_path.iterdir())


def test_colours_survive(tmp_path):
    colours = [(212, 24, 28), (94, 163, 84), (96, 97, 102), (20, 22, 27)]
    picture = np.zeros((HEIGHT, VIEW_WIDTH + WIDTH, 3), np.uint8)
    for panel, rgb in enumerate(colours):
        picture[:, 320 * panel : 320 * (panel + 1)] = rgb
    with movie(tmp_path / "c.mp4", 10, "colours") as add:
        for _ in range(3):
            add(picture)
    with av.open(str(tmp_path / "c.mp4")) as film:
        assert film.metadata["title"] == "colours"
        frame = next(film.decode(video=0))
        assert frame.colorspace == 1 and frame.color_range == 1
        shown = frame.reformat(
            format="rgb24", src_colorspace="ITU709", src_color_range="MPEG"
        ).to_ndarray()
    for panel, rgb in enumerate(colours):
        np.testing.assert_allclose(shown[360, 320 * panel + 160], rgb, atol=4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"env": "rally"}, "env is one of race, carracing, gymnasium_carracing, not 'rally'"),
        ({"fps": 30}, "fps is a divisor of 50 .* not 30"),
        ({"fps": 0}, "not 0"),
        ({"env": "carracing", "direction": "cw"}, "direction=ccw"),
        ({"env": "gymnasium_carracing", "direction": "cw"}, "direction=ccw"),
        ({"direction": "north"}, "north"),
        ({"max_ticks": 0}, "max_ticks"),
        ({"env": "gymnasium_carracing", "max_ticks": 0}, "max_ticks"),
        ({"track_seed": -4}, "-4"),
        ({"env": "gymnasium_carracing", "track_seed": -4}, "-4"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, message, tmp_path):
    with pytest.raises(UserError, match=message):
        record_video(Scripted(), tmp_path / "v.mp4", **options)
    assert list(tmp_path.iterdir()) == []


def test_text_is_written_where_it_is_asked_for():
    picture = np.zeros((40, 200, 3), np.uint8)
    end = put_text(picture, "48.15", 20, 30, 20, (250, 0, 0))
    rows, columns = np.nonzero(picture[..., 0] > 125)
    assert 20 <= columns.min() <= 24 and end - 4 <= columns.max() < end
    assert end == pytest.approx(20 + text_width("48.15", 20), abs=1)
    assert 12 <= rows.min() <= 18 and rows.max() in (29, 30)
    assert picture[..., 1:].max() <= 1
    assert text_width("1111", 20) == text_width("0000", 20)
    right = np.zeros_like(picture)
    put_text(
        right, "48.15", 20 + round(text_width("48.15", 20)), 30, 20, (250, 0, 0), align="right"
    )
    assert np.abs(np.nonzero(right[..., 0] > 125)[1].min() - columns.min()) <= 1
    edge = np.zeros_like(picture)
    put_text(edge, "cut off at every side", 150, 5, 30)
    assert edge[:8, 150:].max() > 100
