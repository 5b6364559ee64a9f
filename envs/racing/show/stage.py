"""One car's episode, tick by tick, with all that people want to see of it.

`EngineWorld` drives in the engine, `GymnasiumWorld` in the real CarRacing-v3; videos and the
keyboard game show both in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from common.errors import UserError
from common.rl.policy import ObservationSpec, Spec, TelemetrySpec
from envs.racing.config import EnvConfig
from envs.racing.pixels.adapter import FrameAdapter, FrameStack
from envs.racing.reference.drive import ReferenceDrive
from envs.racing.score.endings import EndingConfig
from envs.racing.show.view import MAP_BACKGROUND_RGB, render_view
from envs.racing.sim.dynamics import DT
from envs.racing.sim.track import Track
from envs.racing.vector_env import RacingVectorEnv


@dataclass(frozen=True)
class CarStatus:
    """How an episode stands.

    Attributes:
        speed: units/s.
        progress: laps, by arc length.
        native_return: points that CarRacing-v3 gives.
        ticks: driven so far.
        off: all wheels are off the road.
        off_track_rate: share of the ticks so far that were off.
        lap_time: seconds of the finished lap or laps, else None.
        ended: whether the episode has ended.
        terminated: it ended otherwise than by its limit of ticks.
    """

    speed: float = 0.0
    progress: float = 0.0
    native_return: float = 0.0
    ticks: int = 0
    off: bool = False
    off_track_rate: float = 0.0
    lap_time: float | None = None
    ended: bool = False
    terminated: bool = False

    @property
    def seconds(self) -> float:
        """Driven so far, or for the laps if they are finished."""
        return self.ticks * DT if self.lap_time is None else self.lap_time

    @property
    def verdict(self) -> str:
        """How an ended episode ended, in words."""
        if self.lap_time is not None:
            return f"Lap complete · {self.lap_time:.2f} s"
        if self.terminated:
            return "Left the playfield"
        return f"Time is up · {100 * self.progress:.0f} % of the lap"


class EngineWorld:
    """One car in the engine.

    Args:
        spec: what the policy observes. The engine draws frames of its size and colour, and 96 x 96
            RGB for a policy that reads telemetry.
        config: everything else about the world; several cars become one.
        track_seed: of any split.

    Raises:
        UserError: a seed that is no track seed.

    Attributes:
        status: how the episode stands.
        is_first: nothing was driven yet.
        info: `RacingVectorEnv`'s info of the last step, arrays of length 1.
        reward: of the last tick.
        frame: (size, size) or (size, size, 3) uint8, the newest frame as the policy would see it.
    """

    def __init__(self, spec: Spec, config: EnvConfig, track_seed: int) -> None:
        self._spec = spec
        frames = ObservationSpec() if isinstance(spec, TelemetrySpec) else spec
        single = replace(
            config,
            size=frames.size,
            grey=frames.grey,
            frame_stack=1,
            action_repeat=1,
            num_agents=1,
            threads=1,
        )
        self._env = RacingVectorEnv(
            1,
            single,
            split=None,
            track_seeds=[track_seed],
            autoreset=False,
            endings=EndingConfig(playfield=config.preset == "carracing"),  # as the evaluator has it
        )
        self._stack = FrameStack(frames)
        self.restart(track_seed)

    def restart(self, track_seed: int) -> None:
        """Begin an episode."""
        observation, self.info = self._env.reset(seed=[track_seed])
        self.reward = 0.0
        self.is_first = True
        self._measure(observation)

    def observe(self) -> np.ndarray:
        """The observation for the next decision, `spec.shape`; call it once per decision."""
        if isinstance(self._spec, TelemetrySpec):
            return self._spec.gather(self.info, 1)[0]
        return (self._stack.reset if self.is_first else self._stack.push)(self.frame)

    def step(self, action: np.ndarray) -> None:
        """One tick; action (3,): steer [-1, 1], gas [0, 1], brake [0, 1]."""
        observation, reward, _, _, self.info = self._env.step(np.asarray(action)[None])
        self.reward = float(reward[0])
        self.is_first = False
        self._measure(observation)

    def _measure(self, observation: np.ndarray) -> None:
        self.frame = observation[0, 0] if self._env.config.grey else observation[0]
        car = self.cars[0]
        ticks = int(car["tick"])
        self.status = CarStatus(
            speed=float(car["speed"]),
            progress=float(car["arc"]) / self.track.length,
            native_return=float(car["native_return"]),
            ticks=ticks,
            off=bool(self.info["off_track"][0] == 1.0),
            off_track_rate=int(car["off_ticks"]) / max(ticks, 1),
            lap_time=int(car["finish_tick"]) * DT if car["finish_tick"] > 0 else None,
            ended=not car["active"],
            terminated=bool(car["terminated"]),
        )

    @property
    def track(self) -> Track:
        """The track being driven."""
        return self._env.engine.tracks[0].track

    @property
    def cars(self) -> np.ndarray:
        """(1,) CAR record."""
        return self._env.engine.cars[0]

    def view(self, width: int, height: int) -> np.ndarray:
        """(height, width, 3) uint8 RGB, the large picture."""
        engine = self._env.engine
        painted = engine.contacted(0, 0)
        return render_view(
            self.track, self.cars, engine.wheels[0], width=width, height=height, painted=painted
        )

    def close(self) -> None:
        """Stop background threads."""
        self._env.close()


class GymnasiumWorld:
    """The real CarRacing-v3 behind the interface of `EngineWorld`, measured as the evaluator does.

    Args:
        spec: what the policy was trained on.
        track_seed: CarRacing-v3's reset seed.
        max_ticks: until the episode is over.

    Raises:
        UserError: the extra `parity` is not installed, or the policy reads telemetry.
    """

    def __init__(self, spec: Spec, track_seed: int, max_ticks: int) -> None:
        if isinstance(spec, TelemetrySpec):
            raise UserError("the real CarRacing-v3 has no telemetry for this policy to read")
        self._drive = ReferenceDrive(track_seed, render_mode="rgb_array")
        self._adapter = FrameAdapter(spec, mask_score=True)
        self._max_ticks = max_ticks
        self.track = self._drive.track
        self.cars = self._drive.car
        self._observation = self._adapter.reset(self._drive.frame)
        self.is_first = True
        self.status = CarStatus()

    def observe(self) -> np.ndarray:
        """The observation for the next decision, `spec.shape`; call it once per decision."""
        if not self.is_first:
            self._observation = self._adapter.push(self._drive.frame)
        return self._observation

    @property
    def frame(self) -> np.ndarray:
        """(size, size) or (size, size, 3) uint8, the newest frame that the policy has seen."""
        stacked = self._adapter.spec.grey or self._adapter.spec.frame_stack > 1
        return self._observation[-1] if stacked else self._observation

    def step(self, action: np.ndarray) -> None:
        """One tick; action (3,): steer [-1, 1], gas [0, 1], brake [0, 1]."""
        self._drive.step(action)
        self.is_first = False
        car, episode = self.cars[0], self._drive.statistics()
        self.status = CarStatus(
            speed=float(car["speed"]),
            progress=episode["progress"],
            native_return=episode["native_return"],
            ticks=episode["length"],
            off=self._drive.off,
            off_track_rate=episode["off_track_rate"],
            lap_time=episode["lap_time"] if episode["finished"] else None,
            ended=bool(car["terminated"]) or episode["length"] >= self._max_ticks,
            terminated=bool(car["terminated"]),
        )

    def view(self, width: int, height: int) -> np.ndarray:
        """(height, width, 3) uint8 RGB: CarRacing's own picture for people, below a bar."""
        import cv2

        shown = self._drive.env.render()
        scale = min(width / shown.shape[1], height / shown.shape[0])
        size = (round(shown.shape[1] * scale), round(shown.shape[0] * scale))
        left, top = (width - size[0]) // 2, height - size[1]
        picture = np.full((height, width, 3), MAP_BACKGROUND_RGB, np.uint8)
        area = picture[top : top + size[1], left : left + size[0]]
        area[:] = cv2.resize(shown, size, interpolation=cv2.INTER_CUBIC)
        return picture

    def close(self) -> None:
        """Close Gymnasium's environment."""
        self._drive.close()


World = EngineWorld | GymnasiumWorld
