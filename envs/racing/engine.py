"""The engine: worlds x agents stepped and drawn by kernels that hold no lock.

Here three folders meet: a tick moves a car (`sim`), darkens the tiles that it touched (`pixels`)
and is measured and paid (`score`), all in one compiled call per step.

`Engine` does not know Gymnasium, the order of episodes or the source of tracks. It gets painted
tracks, steps the worlds, and draws into a buffer of the caller. Each thread takes a part of the
worlds. No world reads another, so the result is the same for any number of threads and worlds.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import pairwise
from typing import Any

import numpy as np

from common.errors import UserError
from common.telemetry import TELEMETRY
from envs.racing.config import EnvConfig
from envs.racing.pixels.batch import BatchRenderer, repaint
from envs.racing.pixels.painted_track import PaintedTrack
from envs.racing.score.car import CAR
from envs.racing.score.endings import NOT_ENDED, EndingConfig
from envs.racing.score.quantities import remember
from envs.racing.score.terms import TERMS, RewardConfig, total
from envs.racing.score.tick import make_rules, score_tick
from envs.racing.sim.dynamics import WHEEL
from envs.racing.sim.grid import start_cars
from envs.racing.sim.handles import HANDLE, open_track
from envs.racing.sim.kernel import kernel
from envs.racing.sim.neighbours import look_around
from envs.racing.sim.schedule import GRID, Start
from envs.racing.sim.telemetry import read_telemetry
from envs.racing.sim.tick import advance
from envs.racing.sim.track import MAX_TILES


@kernel(counted=False)
def _tick(
    cars,
    wheels,
    agent,
    track,
    visited,
    contacted,
    fresh,
    lut,
    look,
    grips,
    rules,
    action,
    terms,
):
    """One tick of car number `agent` of a world. The arrays are those of `_step_world`."""
    car, four = cars[agent], wheels[agent]
    before = remember(car)
    touched = advance(car, four, track, action, grips, visited, contacted, fresh)
    repaint(lut, fresh, touched, look)
    neighbours = look_around(cars, wheels, agent, track)
    ending = score_tick(car, four, track, before, action, rules, neighbours, terms)
    if ending != NOT_ENDED:
        car.active = 0


@kernel(counted=False)
def _step_world(
    w,
    cars,
    wheels,
    handles,
    visited,
    contacted,
    fresh,
    luts,
    look,
    grips,
    rules,
    repeat,
    actions,
    rewards,
    terms,
):
    """Step world `w`; see `Engine` for the arrays. fresh: (MAX_TILES,) int32 scratch."""
    track = open_track(handles[w])
    for a in range(cars.shape[1]):
        cars[w, a].arc_delta = 0.0
        terms[w, a, :] = 0.0
    for _ in range(repeat):
        for a in range(cars.shape[1]):
            if cars[w, a].active:
                _tick(
                    cars[w],
                    wheels[w],
                    a,
                    track,
                    visited[w, a],
                    contacted[w, a],
                    fresh,
                    luts[w, a],
                    look,
                    grips,
                    rules,
                    actions[w, a],
                    terms[w, a],
                )
    for a in range(cars.shape[1]):
        rewards[w, a] = total(terms[w, a])


@kernel
def _step(
    first,
    last,
    cars,
    wheels,
    handles,
    visited,
    contacted,
    luts,
    look,
    grips,
    rules,
    repeat,
    actions,
    rewards,
    terms,
):
    """Step the worlds from `first` to before `last`."""
    fresh = np.empty(MAX_TILES, np.int32)
    for w in range(first, last):
        _step_world(
            w,
            cars,
            wheels,
            handles,
            visited,
            contacted,
            fresh,
            luts,
            look,
            grips,
            rules,
            repeat,
            actions,
            rewards,
            terms,
        )


@kernel
def _start(worlds, starts, cars, wheels, handles, visited, contacted):
    """Put the cars of some worlds at their `starts`, (n, 4) float64."""
    fresh = np.empty(MAX_TILES, np.int32)
    for i in range(len(worlds)):
        w = worlds[i]
        track = open_track(handles[w])
        start_cars(cars[w], wheels[w], track, starts[i], visited[w], contacted[w], fresh)


class Engine:
    """State and kernels of `worlds` x `agents` cars.

    Attributes:
        cars: (worlds, agents) CAR records; wheels: (worlds, agents, 4) WHEEL records.
        rewards: (worlds, agents) float64 and terms: (worlds, agents, len(TERMS)) float64 of the
            last step.
        grips: (2,) float64, friction of road and grass as a share of CarRacing's road.
        renderer: the agents' cameras and colours.

    Args:
        worlds: number of worlds.
        config: configuration of every world.
        reward: coefficients of the reward's terms.
        endings: what ends an episode; the default ends it as CarRacing does.

    Raises:
        UserError: a preset that this engine does not have.
    """

    def __init__(
        self,
        worlds: int,
        config: EnvConfig,
        reward: RewardConfig,
        endings: EndingConfig | None = None,
    ) -> None:
        if config.preset == "gymnasium_carracing":
            raise UserError(
                "preset gymnasium_carracing is Gymnasium's own simulator, not this engine: "
                "use envs.racing.reference.vector_env.ReferenceVectorEnv, or preset=carracing"
            )
        agents = config.num_agents
        self.config = config
        self.renderer = BatchRenderer(worlds, config)
        self.cars = np.zeros((worlds, agents), CAR)
        self.wheels = np.zeros((worlds, agents, 4), WHEEL)
        self.rewards = np.zeros((worlds, agents))
        self.terms = np.zeros((worlds, agents, len(TERMS)))
        self.grips = np.array([config.road_friction, config.grass_friction])
        self.tracks: list[PaintedTrack | None] = [None] * worlds
        self._handles = np.zeros(worlds, HANDLE)
        self._visited = np.zeros((worlds, agents, MAX_TILES), np.uint8)
        self._contacted = np.zeros((worlds, agents, MAX_TILES), np.uint8)
        self._rules = make_rules(config, reward, endings or EndingConfig())
        self._telemetry = np.zeros((worlds, agents, len(TELEMETRY)), np.float32)
        threads = min(config.threads, worlds)
        edges = np.linspace(0, worlds, threads + 1).astype(int)
        self._slices = [(int(a), int(b)) for a, b in pairwise(edges)]
        self._workers = ThreadPoolExecutor(threads) if threads > 1 else None

    def _run(self, task) -> None:
        """Call task(first, last) for all worlds, split among the threads if there are any."""
        if self._workers is None:
            task(0, len(self.tracks))
            return
        done = [self._workers.submit(task, first, last) for first, last in self._slices]
        wait(done)
        for future in done:
            future.result()

    def reset(
        self,
        worlds: Sequence[int],
        tracks: Sequence[PaintedTrack],
        starts: Sequence[Start] | None = None,
    ) -> None:
        """Start new episodes in some worlds, each on its track. Without `starts`, on the grid."""
        self._load(worlds, tracks)
        worlds = np.asarray(worlds, np.int64)
        self.cars[worlds] = np.zeros((), CAR)
        self.wheels[worlds] = np.zeros((), WHEEL)
        self.rewards[worlds] = 0.0
        self.terms[worlds] = 0.0
        _start(
            worlds,
            np.array(starts or [GRID] * len(worlds), np.float64),
            self.cars,
            self.wheels,
            self._handles,
            self._visited,
            self._contacted,
        )
        self.renderer.set_tracks(worlds, tracks, self._contacted)

    def _load(self, worlds: Sequence[int], tracks: Sequence[PaintedTrack]) -> None:
        for w, track in zip(worlds, tracks, strict=True):
            self.tracks[w] = track
            self._handles[w] = track.handle

    def step(self, actions: np.ndarray) -> None:
        """Advance by `action_repeat` ticks. actions: (worlds, agents, 3) float64, in bounds."""

        def task(first: int, last: int) -> None:
            _step(
                first,
                last,
                self.cars,
                self.wheels,
                self._handles,
                self._visited,
                self._contacted,
                self.renderer.luts,
                self.renderer.look,
                self.grips,
                self._rules,
                self.config.action_repeat,
                actions,
                self.rewards,
                self.terms,
            )

        self._run(task)

    def draw(
        self,
        frames: np.ndarray,
        previous: np.ndarray | None = None,
        worlds: Sequence[int] | None = None,
    ) -> None:
        """Draw what every agent sees.

        Args:
            frames: (worlds * agents, ...) uint8, C-contiguous, written.
            previous: the frames of the step before, which continue a stack; None starts new
                stacks.
            worlds: numbers of the worlds to draw; all by default.
        """
        flat = frames.reshape(len(frames), -1)
        before = flat[:0] if previous is None else previous.reshape(len(previous), -1)
        if worlds is not None:
            selected = np.asarray(worlds, np.int64)
            self.renderer.draw(selected, self.cars, self.wheels, flat, before)
            return

        def task(first: int, last: int) -> None:
            self.renderer.draw(np.arange(first, last), self.cars, self.wheels, flat, before)

        self._run(task)

    def telemetry(self) -> np.ndarray:
        """(worlds, agents, len(TELEMETRY)) float32, columns in the order of TELEMETRY; reused."""
        read_telemetry(self.cars, self.wheels, self._handles, self._telemetry)
        return self._telemetry

    def contacted(self, world: int, agent: int) -> np.ndarray:
        """(tiles,) bool, the tiles that a car has touched; they are drawn darker."""
        return self._contacted[world, agent, : len(self.tracks[world].track)].astype(bool)

    def visited(self, world: int, agent: int) -> np.ndarray:
        """(tiles,) bool, the tiles that a wheel has touched."""
        return self._visited[world, agent, : len(self.tracks[world].track)].astype(bool)

    def snapshot(self) -> dict[str, np.ndarray]:
        """Copies of the whole state, except for the tracks that are loaded."""
        return {name: array.copy() for name, array in self._state().items()}

    def restore(self, state: dict[str, np.ndarray], tracks: Sequence[PaintedTrack]) -> None:
        """Continue from a snapshot of the same shapes, on the tracks that were loaded then."""
        for name, array in self._state().items():
            array[...] = state[name]
        worlds = np.arange(len(tracks))
        self._load(worlds, tracks)
        self.renderer.set_tracks(worlds, tracks, self._contacted)

    def _state(self) -> dict[str, np.ndarray]:
        return {
            "cars": self.cars.view(np.uint8),
            "wheels": self.wheels.view(np.uint8),
            "visited": self._visited,
            "contacted": self._contacted,
        }

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        del state["_handles"]  # addresses of this process
        state["_workers"] = self._workers is not None
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._workers = ThreadPoolExecutor(len(self._slices)) if state["_workers"] else None
        self._handles = np.zeros(len(self.tracks), HANDLE)
        loaded = [w for w, track in enumerate(self.tracks) if track is not None]
        tracks = [self.tracks[w] for w in loaded]
        self._load(loaded, tracks)
        self.renderer.set_tracks(loaded, tracks, self._contacted)

    def close(self) -> None:
        """Stop the engine's threads."""
        if self._workers is not None:
            self._workers.shutdown()
            self._workers = None
