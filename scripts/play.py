"""Drive with the keyboard, in real time; every episode is recorded."""

import io
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from common import cli
from common.display import progress_bar
from common.errors import UserError
from common.files import atomic_write_bytes
from common.keyboard import KeyboardDriver, open_window
from common.rl.controls import Recorded
from common.runs import Run, run_name
from common.schema import config_class
from common.telemetry import TELEMETRY

if TYPE_CHECKING:
    from envs.racing.show.stage import EngineWorld

DESCRIPTION = """Drive with the keyboard (extra play: pip install -e '.[play]').

    python scripts/play.py track_seed=3 video=true

Arrows or WASD drive, R takes a new track, Space starts this one again, Esc ends. Every episode goes
into a run directory as episode_<n>.npz: actions and rewards per tick, telemetry at the start and
after every tick, and which track it was; numpy.load reads it without pickle."""

QUICK_TICKS = 100
MOST_SKIPPED = 4
"""Pictures left out in a row by a machine that is too slow, so that time stays real."""


@config_class
class Settings:
    """The settings of the command.

    Attributes:
        preset: laps by arc length, or CarRacing-v3's own rules.
        track_seed: the first track; R takes the next.
        direction: driving direction (preset race).
        tracks: CarRacing-v3's tracks, or the graded family.
        difficulty: of procedural tracks, 0 to 1.
        laps: laps of a race.
        max_ticks: ticks of an episode, 50 to a second.
        ticks: end after so many ticks; 0: with Esc.
        video: also film the episodes, afterwards.
        quick: end after 100 ticks.
        run_root: where the run directory goes.
        name: of the run directory <run_root>/play/<name>; empty makes one from the time.
    """

    preset: Literal["race", "carracing"] = "race"
    track_seed: int = 0
    direction: Literal["ccw", "cw"] = "ccw"
    tracks: Literal["carracing", "procedural"] = "carracing"
    difficulty: float = 0.5
    laps: int = 1
    max_ticks: int = 3000
    ticks: int = 0
    video: bool = False
    quick: bool = False
    run_root: str = "runs"
    name: str = ""

    def __post_init__(self) -> None:
        if self.ticks < 0:
            raise ValueError(f"ticks is 0 (no end) or positive, not {self.ticks}")


class Episode:
    """The recording of one episode."""

    def __init__(self, world: "EngineWorld") -> None:
        self._names = tuple(TELEMETRY)
        self.seed = world.track.seed
        self.actions: list[np.ndarray] = []
        self._rewards: list[float] = []
        self._telemetry = [self._row(world)]

    def _row(self, world: "EngineWorld") -> list[float]:
        return [world.info[name][0] for name in self._names]

    def add(self, action: np.ndarray, world: "EngineWorld") -> None:
        """Record a tick: the action, and the world after it."""
        self.actions.append(action)
        self._rewards.append(world.reward)
        self._telemetry.append(self._row(world))

    def save(self, path: Path, world: "EngineWorld", preset: str) -> None:
        """Write the episode as .npz, all or nothing."""
        data = io.BytesIO()
        np.savez_compressed(
            data,
            actions=np.array(self.actions, np.float32),
            rewards=np.array(self._rewards, np.float32),
            telemetry=np.array(self._telemetry, np.float32),
            telemetry_names=np.array(self._names),
            track_seed=self.seed,
            direction=world.track.direction,
            tracks=world.track.generator,
            preset=preset,
            terminated=world.status.terminated,
            truncated=world.status.ended and not world.status.terminated,
            native_return=world.status.native_return,
            progress=world.status.progress,
        )
        atomic_write_bytes(path, data.getvalue())


class Game:
    """The loop: keys in, ticks of the world, pictures out, episodes into the run directory."""

    def __init__(self, world: "EngineWorld", run: Run, settings: Settings, pygame: Any) -> None:
        self._world, self._run, self._settings, self._pygame = world, run, settings, pygame
        self._driver = KeyboardDriver(pygame)
        self._carry = self._driver.initial(1)
        self._action = np.zeros(3, np.float32)
        self._episode = Episode(world)
        self.saved: list[Path] = []
        self.ticks = 0
        self.best_lap: float | None = None

    def play(
        self, show: Callable[["EngineWorld", np.ndarray], None], events: Callable[[], Iterable]
    ) -> None:
        """Play until Esc, a closed window or the limit of ticks."""
        limit = QUICK_TICKS if self._settings.quick else self._settings.ticks
        start, skipped = time.perf_counter(), 0
        while not limit or self.ticks < limit:
            if not all([self._handle(event) for event in events()]):
                break
            self._tick()
            self.ticks += 1
            late = time.perf_counter() - start - self.ticks / 50
            if late < 0 or skipped == MOST_SKIPPED:
                show(self._world, self._action)
                skipped = 0
            else:
                skipped += 1
            late = time.perf_counter() - start - self.ticks / 50
            if late > 1.0:  # a machine that cannot keep up, or slept: no catching up
                start += late
            time.sleep(max(-late, 0.0))
        self._save_episode()

    def _handle(self, event: Any) -> bool:
        """React to an event; False ends the game."""
        pygame = self._pygame
        self._driver.handle(event)
        if event.type == pygame.QUIT:
            return False
        if event.type == pygame.KEYDOWN:
            match event.key:
                case pygame.K_ESCAPE:
                    return False
                case pygame.K_r:
                    self._begin(self._episode.seed + 1)
                case pygame.K_SPACE:
                    self._begin(self._episode.seed)
        return True

    def _tick(self) -> None:
        if self._world.status.ended:
            return
        observation, is_first = self._world.observe()[None], np.array([self._world.is_first])
        actions, self._carry = self._driver.act(self._carry, observation, is_first)
        self._action = actions[0]
        self._world.step(self._action)
        self._episode.add(self._action, self._world)
        lap = self._world.status.lap_time
        if lap is not None:
            self.best_lap = min(lap, self.best_lap or lap)

    def _begin(self, seed: int) -> None:
        self._save_episode()
        self._world.restart(seed)
        self._action = np.zeros(3, np.float32)
        self._episode = Episode(self._world)

    def _save_episode(self) -> None:
        if self._episode.actions:
            path = self._run.path / f"episode_{len(self.saved)}.npz"
            self._episode.save(path, self._world, self._settings.preset)
            self.saved.append(path)


def main() -> None:
    settings = cli.parse(Settings, DESCRIPTION)
    # Late: --help need not wait for numba.
    from envs.racing.config import EnvConfig
    from envs.racing.show.dashboard import HEIGHT, VIEW_WIDTH, WIDTH, compose
    from envs.racing.show.stage import EngineWorld
    from envs.racing.show.video import DIRECTION_NAMES, record_video

    try:
        config = EnvConfig(
            preset=settings.preset,
            tracks=settings.tracks,
            difficulty=settings.difficulty,
            direction=settings.direction,
            laps=settings.laps,
            max_ticks=settings.max_ticks,
        )
    except ValueError as error:
        raise UserError(str(error)) from None
    pygame, window = open_window((VIEW_WIDTH + WIDTH, HEIGHT), "scripts/watch.py does not need one")
    world = EngineWorld(KeyboardDriver.spec, config, settings.track_seed)
    run = Run.create(
        settings.run_root,
        run_name(settings.name, "play", settings.preset),
        asdict(settings),
        seeds={"track": settings.track_seed},
    )

    def show(world: EngineWorld, action: np.ndarray) -> None:
        track = f"Track {world.track.seed} · {DIRECTION_NAMES[world.track.direction]}"
        picture = compose(
            world,
            action,
            caption=f"{track} · R new track · Space again · Esc ends",
            title="A POLICY SEES",
            note="96 x 96 · RGB",
        )
        frame = pygame.image.frombuffer(picture, picture.shape[1::-1], "RGB")
        window.blit(frame, (0, 0))
        pygame.display.flip()

    game = Game(world, run, settings, pygame)
    try:
        game.play(show, pygame.event.get)
    finally:
        pygame.quit()
        world.close()
    if settings.video:
        for number, path in enumerate(game.saved):
            with np.load(path, allow_pickle=False) as episode:
                actions, seed = episode["actions"], int(episode["track_seed"])
            with progress_bar(f"filming episode {number}") as progress:
                record_video(
                    Recorded(actions),  # the engine makes the same episode of them
                    run.videos / f"episode_{number}.mp4",
                    env=settings.preset,
                    track_seed=seed,
                    direction=settings.direction,
                    max_ticks=len(actions),
                    config=config,
                    progress=progress,
                )
    metrics = {"episodes": len(game.saved), "ticks": game.ticks, "best_lap_time": game.best_lap}
    cli.finish({**metrics, "recorded": str(run.path)}, run)


if __name__ == "__main__":
    cli.run_main(main)
