"""The keyboard game without a keyboard: real key events in a window that nobody sees."""

import importlib.util
import sys
import time
from pathlib import Path

import av
import numpy as np
import pytest

from common.telemetry import TELEMETRY
from envs.racing import EnvConfig, RacingVectorEnv

pygame = pytest.importorskip("pygame")
SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "play.py"


@pytest.fixture
def play(monkeypatch, tmp_path):
    spec = importlib.util.spec_from_file_location("play", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "play", module)
    spec.loader.exec_module(module)
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    monkeypatch.chdir(tmp_path)
    return module


@pytest.fixture
def drive(play, monkeypatch, capsys):
    """Runs the game with keys pressed and released at given ticks; returns the last line."""

    def call(*arguments, keys=()):
        pending = sorted(keys, key=lambda key: key[0])
        clock = iter(range(1_000_000))
        get = pygame.event.get

        def events():
            tick = next(clock)
            while pending and pending[0][0] <= tick:
                _, kind, key = pending.pop(0)
                pygame.event.post(pygame.event.Event(kind, key=key))
            return get()

        monkeypatch.setattr(pygame.event, "get", events)
        monkeypatch.setattr(sys, "argv", ["play.py", *arguments])
        with pytest.raises(SystemExit) as ended:
            play.cli.run_main(play.main)
        out, err = capsys.readouterr()
        if ended.value.code:
            return ended.value.code, err
        return dict(pair.split("=", 1) for pair in out.splitlines()[-1].split())

    return call


def load(path):
    with np.load(path, allow_pickle=False) as data:
        return {name: data[name] for name in data.files}


DOWN, UP = pygame.KEYDOWN, pygame.KEYUP


def test_keys_drive_and_the_drive_can_be_driven_again(drive, tmp_path):
    begun = time.perf_counter()
    facts = drive(
        "track_seed=7",
        "ticks=50",
        keys=[
            (0, DOWN, pygame.K_UP),
            (20, DOWN, pygame.K_a),
            (35, UP, pygame.K_UP),
            (40, UP, pygame.K_a),
            (40, DOWN, pygame.K_s),
        ],
    )
    assert time.perf_counter() - begun > 1.0, "50 ticks are a second"
    assert facts["ticks"] == "50" and facts["episodes"] == "1"
    episode = load(tmp_path / facts["recorded"] / "episode_0.npz")
    actions = episode["actions"]
    steer, gas, brake = actions.T
    assert actions.shape == (50, 3) and actions.dtype == np.float32
    assert gas[0] > 0 and gas[30] == 1.0 and (gas[36:] == 0).all()
    assert (steer[:20] == 0).all() and steer[34] == -1.0 and steer[-1] == 0.0
    assert (brake[:40] == 0).all() and (brake[41:] > 0.5).all()

    assert tuple(episode["telemetry_names"]) == tuple(TELEMETRY)
    assert episode["telemetry"].shape == (51, len(TELEMETRY))
    assert episode["track_seed"] == 7 and episode["direction"] == "ccw"
    config = EnvConfig(max_ticks=3000)
    env = RacingVectorEnv(1, config, split=None, track_seeds=[7], autoreset=False)
    _, info = env.reset()
    for tick, action in enumerate(actions):
        row = [info[name][0] for name in TELEMETRY]
        np.testing.assert_array_equal(episode["telemetry"][tick], np.float32(row))
        _, reward, _, _, info = env.step(action[None])
        assert reward[0] == episode["rewards"][tick]
    assert info["speed"][0] > 5
    env.close()


def test_new_track_same_track_and_escape(drive, tmp_path):
    facts = drive(
        "track_seed=20",
        "direction=cw",
        "video=true",
        keys=[
            (0, DOWN, pygame.K_w),
            (6, DOWN, pygame.K_r),
            (14, DOWN, pygame.K_SPACE),
            (24, DOWN, pygame.K_ESCAPE),
        ],
    )
    assert facts["episodes"] == "3" and facts["ticks"] == "24"
    run = tmp_path / facts["recorded"]
    episodes = [load(run / f"episode_{k}.npz") for k in range(3)]
    assert [int(e["track_seed"]) for e in episodes] == [20, 21, 21]
    assert [len(e["actions"]) for e in episodes] == [6, 8, 10]
    assert all(e["direction"] == "cw" and not e["terminated"] for e in episodes)
    np.testing.assert_array_equal(episodes[1]["telemetry"][0], episodes[2]["telemetry"][0])
    assert (episodes[0]["telemetry"][0] != episodes[1]["telemetry"][0]).any()
    for k, episode in enumerate(episodes):
        with av.open(str(run / "videos" / f"episode_{k}.mp4")) as film:
            assert sum(1 for _ in film.decode(video=0)) == 1 + len(episode["actions"]) + 50


def test_an_ended_episode_waits_for_the_driver(drive, tmp_path):
    facts = drive("max_ticks=5", "ticks=12", keys=[(0, DOWN, pygame.K_UP)])
    episode = load(tmp_path / facts["recorded"] / "episode_0.npz")
    assert facts["episodes"] == "1" and len(episode["actions"]) == 5
    assert episode["truncated"] and not episode["terminated"]


def test_the_window_shows_the_drive(play, drive, monkeypatch):
    pictures = []
    flip = pygame.display.flip

    def seen():
        pictures.append(pygame.surfarray.array3d(pygame.display.get_surface()))
        flip()

    monkeypatch.setattr(pygame.display, "flip", seen)
    monkeypatch.setattr(play, "QUICK_TICKS", 15)
    facts = drive("quick=true", keys=[(0, DOWN, pygame.K_UP)])
    assert facts["ticks"] == "15"
    assert len(pictures) >= 3 and pictures[0].shape == (1280, 720, 3)
    assert (pictures[0] != pictures[-1]).mean() > 0.1


def test_a_slow_machine_skips_pictures_but_keeps_time(play, tmp_path):
    from common.runs import Run
    from envs.racing import ObservationSpec
    from envs.racing.show.stage import EngineWorld

    world = EngineWorld(ObservationSpec(), EnvConfig(), 3)
    run = Run.create(tmp_path, "slow", {}, seeds={})
    game = play.Game(world, run, play.Settings(ticks=30), pygame)
    shown = []

    def show(world, action):
        shown.append(world.status.ticks)
        time.sleep(0.05)

    begun = time.perf_counter()
    game.play(show, list)
    assert 0.55 < time.perf_counter() - begun < 1.5, "30 pictures alone would take 1.5 s"
    assert 6 <= len(shown) < 20
    world.close()


def test_without_a_screen_or_pygame_it_says_so(drive, monkeypatch, tmp_path):
    pygame.quit()
    monkeypatch.setenv("SDL_VIDEODRIVER", "nosuchdriver")
    code, err = drive()
    assert code == 2 and "cannot open a window" in err and "watch.py" in err
    monkeypatch.setitem(sys.modules, "pygame", None)
    code, err = drive()
    assert code == 2 and "pip install -e '.[play]'" in err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("ticks=-1", "ticks"),
        ("difficulty=3", "difficulty"),
        ("preset=rally", "carracing"),
        ("track_seed=-1", "-1"),
        ("trackseed=1", "track_seed"),
    ],
)
def test_bad_arguments_are_told_in_one_message(drive, tmp_path, argument, message):
    code, err = drive(argument)
    assert code == 2
    assert err.startswith("error: ") and message in err and "Traceback" not in err
    assert not (tmp_path / "runs").exists()
