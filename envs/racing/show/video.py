"""Videos of one episode: the large view, the pixels that the policy sees, its actions, telemetry.

H.264 in MP4, 1280 x 720, yuv420p with the index in front, which every browser plays.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from common.errors import UserError
from common.files import replacing
from common.rl.policy import Policy, Spec, TelemetrySpec
from common.seeding import refuse_sealed, whole_seed
from envs.racing.config import EnvConfig
from envs.racing.evaluate import WORLDS, Progress
from envs.racing.show.dashboard import HEIGHT, VIEW_WIDTH, WIDTH, compose
from envs.racing.show.stage import EngineWorld, GymnasiumWorld, World
from envs.racing.sim.dynamics import DT

TICKS_PER_SECOND = round(1 / DT)
HOLD_SECONDS = 1.0
"""How long the last picture stands."""
DIRECTION_NAMES = {"ccw": "counter-clockwise", "cw": "clockwise"}
_BT709, _LIMITED_RANGE = 1, 1


def record_video(
    policy: Policy,
    path: str | os.PathLike,
    *,
    env: Literal["race", "carracing", "gymnasium_carracing"] = "race",
    track_seed: int = 0,
    direction: Literal["ccw", "cw"] = "ccw",
    max_ticks: int = 1000,
    fps: int = 50,
    config: EnvConfig | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Drive one episode, deterministically and by the evaluator's rules, and film it.

    Args:
        policy: what drives.
        path: the MP4 to write; it appears when it is whole, and nothing is left of a failure.
        env: our world by preset, or the real CarRacing-v3 (extra `parity`).
        track_seed: of any split.
        direction, max_ticks: of the episode.
        fps: frames per second of the video, a divisor of 50; it plays in real time.
        config: further settings of our world (tracks, difficulty, grips, width, laps).
        progress: called after every tick with the ticks driven and `max_ticks`.

    Returns:
        progress (laps, at most 1), native_return, ticks, seconds (driven), finished, lap_time (s or
        None), off_track_rate, and frames (of the video).

    Raises:
        UserError: options that do not fit together, or no track seed.
    """
    if fps < 1 or TICKS_PER_SECOND % fps:
        raise UserError(f"fps is a divisor of {TICKS_PER_SECOND} (50, 25, 10 ...), not {fps}")
    if max_ticks < 1:
        raise UserError(f"max_ticks is at least 1, not {max_ticks}")
    refuse_sealed([whole_seed(track_seed)])
    spec = policy.spec
    world, caption = _open(spec, env, track_seed, direction, max_ticks, config)
    stride = TICKS_PER_SECOND // fps
    frames = 0
    with closing(world), movie(path, fps, caption) as add:
        for action in _drive(policy, world, track_seed):
            if progress is not None:
                progress(world.status.ticks, max_ticks)
            if world.status.ticks % stride == 0 or world.status.ended:
                picture = compose(world, action, caption=caption, note=describe(spec))
                add(picture)
                frames += 1
        for _ in range(round(HOLD_SECONDS * fps)):
            add(picture)
            frames += 1
    status = world.status
    return {
        "progress": min(status.progress, 1.0),
        "native_return": status.native_return,
        "ticks": status.ticks,
        "seconds": status.ticks * DT,
        "finished": status.lap_time is not None,
        "lap_time": status.lap_time,
        "off_track_rate": status.off_track_rate,
        "frames": frames,
    }


@contextmanager
def movie(
    path: str | os.PathLike, fps: int, title: str = ""
) -> Iterator[Callable[[np.ndarray], None]]:
    """Yield `add(picture)` for (720, 1280, 3) uint8 RGB; the file appears when the body is done.

    If the body raises, nothing is left behind.
    """
    import av  # here, as training needs no videos

    # faststart: the index comes first, so a browser plays before it has the whole file.
    options = {"movflags": "+faststart"}
    with (
        replacing(path) as temporary,
        av.open(temporary, "w", format="mp4", options=options) as film,
    ):
        film.metadata["title"] = title
        stream = film.add_stream("libx264", rate=fps)
        stream.width, stream.height, stream.pix_fmt = VIEW_WIDTH + WIDTH, HEIGHT, "yuv420p"
        stream.options = {"preset": "veryfast", "crf": "21", "profile": "high"}
        context = stream.codec_context
        context.time_base = Fraction(1, fps)
        # Said aloud, since players differ in what they take an untagged film for.
        context.colorspace = context.color_primaries = context.color_trc = _BT709
        context.color_range = _LIMITED_RANGE

        def add(picture: np.ndarray) -> None:
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            film.mux(
                stream.encode(
                    frame.reformat(
                        format="yuv420p", dst_colorspace="ITU709", dst_color_range="MPEG"
                    )
                )
            )

        yield add
        film.mux(stream.encode(None))


def save_still(video: str | os.PathLike, seconds: float, path: str | os.PathLike) -> None:
    """Save the picture at `seconds` of a film (its last one if it is shorter) as an image."""
    import av

    picture = None
    with av.open(str(video)) as film:
        for picture in film.decode(video=0):
            if picture.time >= seconds:
                break
    if picture is None:
        raise UserError(f"{video} has no pictures")
    with replacing(path) as temporary:
        picture.to_image().save(temporary)


def describe(spec: Spec) -> str:
    """What a policy observes, in a few words."""
    if isinstance(spec, TelemetrySpec):
        return "reads telemetry" if spec.names else "96 x 96 · RGB"
    colour = "grey" if spec.grey else "RGB"
    stack = f" · {spec.frame_stack} frames" if spec.frame_stack > 1 else ""
    return f"{spec.size} x {spec.size} · {colour}{stack}"


def _open(
    spec: Spec,
    env: str,
    track_seed: int,
    direction: str,
    max_ticks: int,
    config: EnvConfig | None,
) -> tuple[World, str]:
    if env not in WORLDS:
        raise UserError(f"env is one of {', '.join(WORLDS)}, not {env!r}")
    if env == "gymnasium_carracing":
        if direction != "ccw" or config is not None:
            raise UserError(f"{env} is the real CarRacing-v3: direction=ccw and no config")
        return GymnasiumWorld(spec, track_seed, max_ticks), f"CarRacing-v3 · track {track_seed}"
    try:
        config = config or EnvConfig()
        config = replace(config, preset=env, direction=direction, max_ticks=max_ticks)
    except ValueError as error:
        raise UserError(f"env={env}: {error}") from None
    caption = f"Track {track_seed} · {DIRECTION_NAMES[direction]}"
    return EngineWorld(spec, config, track_seed), caption


def _drive(policy: Policy, world: World, seed: int) -> Iterator[np.ndarray]:
    """Drive the episode; yield the last action at the start and after every tick."""
    action = np.zeros(3, np.float32)
    carry = policy.initial(1, [seed])
    while not world.status.ended:
        decide = world.status.ticks % policy.spec.action_repeat == 0
        # Before the picture is drawn, which shows what the policy sees.
        observation = world.observe()[None] if decide else None
        yield action
        if decide:
            is_first = np.array([world.is_first])
            actions, carry = policy.act(carry, observation, is_first, deterministic=True)
            action = actions[0]
        world.step(action)
    yield action
