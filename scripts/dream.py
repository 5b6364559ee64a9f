"""Drive inside a world model's imagination: by keyboard, or a scripted dream as a film."""

from __future__ import annotations

import time
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from common import cli
from common.display import progress_bar
from common.errors import UserError
from common.files import replacing, sha256_file
from common.keyboard import KeyboardDriver, open_window
from common.rl.controls import Recorded
from common.rl.policy import Policy
from common.runs import Run, run_name
from common.schema import config_class
from common.telemetry import ACTION

if TYPE_CHECKING:
    from rssm import State, WorldModel

DESCRIPTION = """Dream: the model observes a second of real driving, then imagines the rest.

    python scripts/dream.py checkpoint=experiments/checkpoints/P5.pt
    python scripts/dream.py checkpoint=... film=true script=left

Arrows or WASD drive, R begins again from another moment, Esc ends (extra play). film=true needs no
screen: it drives by a script and writes dream.mp4 into the run directory."""

SCALE = 6
CONTEXT = 50
QUICK_TICKS = 25
SCRIPTS: dict[str, tuple[tuple[int, tuple[float, float, float]], ...]] = {
    "slalom": ((30, (0, 0.4, 0)), (25, (-0.5, 0.2, 0)), (25, (0.5, 0.2, 0)), (40, (0, 0.4, 0))),
    "left": ((20, (0, 0.3, 0)), (100, (-0.6, 0.15, 0))),
    "right": ((20, (0, 0.3, 0)), (100, (0.6, 0.15, 0))),
    "brake": ((40, (0, 0.6, 0)), (60, (0, 0, 0.6)), (20, (0, 0, 0))),
}
"""Ticks and steer, gas, brake of each part."""

LABELS = {"steer": "wheel angle (rad)"}
"""Labels for predictions whose names are also names of actions."""


@config_class
class Settings:
    """The settings of the command.

    Attributes:
        checkpoint: of a world model: a file or a run.
        data_root: where the data sets are.
        dataset: the data set of the first second.
        split: of the data set.
        start: episode to begin with.
        film: a scripted dream, without a screen.
        script: the actions that are dreamt: slalom, left, right or brake.
        sample: draw the state from the prior; false takes its mode.
        seed: of the random draws.
        quick: 25 ticks only.
        run_root: where the run directory goes.
        name: of the run directory <run_root>/dream/<name>; empty makes one from the time.
    """

    checkpoint: str
    data_root: str = "data"
    dataset: str = "PROBE"
    split: str = "probe"
    start: int = 0
    film: bool = False
    script: str = "slalom"
    sample: bool = True
    seed: int = 0
    quick: bool = False
    run_root: str = "runs"
    name: str = ""

    def __post_init__(self) -> None:
        if self.script not in SCRIPTS:
            raise ValueError(f"script is one of {', '.join(SCRIPTS)}, not {self.script!r}")
        if self.start < 0:
            raise ValueError(f"start is 0 or more, not {self.start}")
        if not 0 <= self.seed < 2**63:
            raise ValueError(f"seed is 0 to 2^63 - 1, not {self.seed}")


class Dream:
    """An imagination under way.

    Attributes:
        frame: (size, size, 3) uint8, what is imagined now.
        predictions: numbers by the name of the head.
        ticks: imagined so far.
        is_first: nothing was imagined yet.
        action: (3,) that led here.
    """

    def __init__(self, model: WorldModel, data: Any, settings: Settings) -> None:
        import torch

        self._torch = torch
        self._model, self._data, self._settings = model, data, settings
        self._generator = torch.Generator().manual_seed(settings.seed)
        long = np.flatnonzero(data.episodes["length"] >= CONTEXT)
        if not len(long):
            raise UserError(f"{data.path}: no episode has {CONTEXT} rows")
        self._episodes = data.episodes[long]
        if settings.start >= len(long):
            raise UserError(f"start={settings.start}: {data.path} has {len(long)} such episodes")
        self.begin(settings.start)

    def begin(self, episode: int) -> None:
        """Observe the first second of an episode."""
        torch = self._torch
        self.episode = episode % len(self._episodes)
        first = int(self._episodes[self.episode]["start"])
        rows = self._data.windows([first], CONTEXT, ["observation", "action", "is_first"])
        self.context = rows["observation"][0]
        with torch.no_grad():
            observed = self._model.observe(
                torch.from_numpy(rows["observation"]),
                torch.from_numpy(rows["action"]),
                torch.from_numpy(rows["is_first"]),
                noise=self._model.core.latent.noise((1, CONTEXT), self._generator),
            )
        self.state = type(observed.state)(*(part[:, -1] for part in observed.state))
        self.frame = self.context[-1]
        self.predictions: dict[str, float] = {}
        self.ticks = 0
        self.is_first, self.action = True, np.zeros(3, np.float32)

    def drive(self, policy: Policy, carry: Any) -> Any:
        """Imagine one tick, as a policy of one car that needs no observation decides.

        Takes and returns the policy's carry.
        """
        observation = np.zeros((1, *policy.spec.shape), np.float32)
        actions, carry = policy.act(carry, observation, np.array([self.is_first]))
        self.step(actions[0])
        return carry

    def step(self, action: np.ndarray) -> None:
        """Imagine one tick. action: (3,) steer, gas, brake."""
        torch = self._torch
        with torch.no_grad():
            future = self._model.imagine(
                self.state,
                torch.from_numpy(np.asarray(action, np.float32))[None, None],
                noise=self._model.core.latent.noise((1, 1), self._generator),
                sample=self._settings.sample,
                pixels=True,
                first_frame=torch.from_numpy(self.frame)[None],
            )
            picture = future.frames[0, 0]
        self.state: State = type(future.state)(*(part[:, -1] for part in future.state))
        self.frame = (255 * picture).round().to(torch.uint8).numpy()
        self.predictions = {
            name: float(value) for name, value in future.predictions.by_head().items()
        }
        self.ticks += 1
        self.is_first, self.action = False, np.asarray(action, np.float32)


def column(dream: Dream) -> list[str]:
    """The lines beside the frame: the action, and what the model predicts."""
    action = dict(zip(ACTION, dream.action, strict=True))
    lines = ["ACTION", *(f"{name}  {value:+.2f}" for name, value in action.items())]
    if dream.predictions:
        lines += ["", "THE MODEL PREDICTS"]
        lines += [
            f"{LABELS.get(name, name)}  {value:.3g}" for name, value in dream.predictions.items()
        ]
    return lines


def picture_of(frame: np.ndarray, dream: Dream, heading: str) -> np.ndarray:
    """(H, W, 3) uint8: the frame, enlarged, with the action and the predictions beside it."""
    import cv2

    size = frame.shape[0] * SCALE
    picture = np.full((size, size + 260, 3), 250, np.uint8)
    picture[:, :size] = cv2.resize(frame, (size, size), interpolation=cv2.INTER_NEAREST)
    for i, text in enumerate([heading, "", *column(dream)]):
        cv2.putText(picture, text, (size + 14, 30 + 24 * i), cv2.FONT_HERSHEY_SIMPLEX, 0.46,
                    (40, 40, 40), 1, cv2.LINE_AA)  # fmt: skip
    return picture


def film(dream: Dream, path: Path, settings: Settings) -> None:
    """Write a scripted dream, its context in front."""
    import av

    script = [action for ticks, action in SCRIPTS[settings.script] for _ in range(ticks)]
    ticks = QUICK_TICKS if settings.quick else len(script)
    policy = Recorded(script)
    carry = policy.initial(1)
    shape = picture_of(dream.frame, dream, "").shape
    with (
        replacing(path) as temporary,
        av.open(temporary, "w", format="mp4") as movie,
        progress_bar("dreaming") as progress,
    ):
        stream = movie.add_stream("libx264", rate=25)
        stream.width, stream.height, stream.pix_fmt = shape[1], shape[0], "yuv420p"
        stream.codec_context.time_base = Fraction(1, 25)

        def add(picture: np.ndarray) -> None:
            movie.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))

        for frame in dream.context[-25:]:
            add(picture_of(frame, dream, "real driving"))
        for tick in range(1, ticks + 1):
            carry = dream.drive(policy, carry)
            add(picture_of(dream.frame, dream, f"imagined, tick {tick}"))
            progress(tick, ticks)
        movie.mux(stream.encode(None))


def drive(dream: Dream, settings: Settings, pygame: Any, window: Any) -> None:
    """Imagine by the keyboard, in real time where the machine can."""
    driver, total = KeyboardDriver(pygame), 0
    carry = driver.initial(1)
    try:
        while not settings.quick or total < QUICK_TICKS:
            started = time.perf_counter()
            for event in pygame.event.get():
                driver.handle(event)
                if event.type == pygame.QUIT or (
                    event.type == pygame.KEYDOWN and event.key == pygame.K_ESCAPE
                ):
                    return
                if event.type == pygame.KEYDOWN and event.key == pygame.K_r:
                    dream.begin(dream.episode + 1)
            carry = dream.drive(driver, carry)
            total += 1
            picture = picture_of(dream.frame, dream, f"imagined, tick {dream.ticks}")
            window.blit(pygame.image.frombuffer(picture, picture.shape[1::-1], "RGB"), (0, 0))
            pygame.display.flip()
            time.sleep(max(1 / 50 - (time.perf_counter() - started), 0))
    finally:
        pygame.quit()


def main() -> None:
    settings = cli.parse(Settings, DESCRIPTION)
    from replay import DataSet  # late: --help need not wait for torch
    from rssm import checkpoint, load_world_model

    path = checkpoint.resolve(settings.checkpoint)
    model = load_world_model(path)
    data = DataSet(settings.data_root, settings.dataset, settings.split, check=False)
    dream = Dream(model, data, settings)
    if not settings.film:  # first, so that a missing display leaves no run directory behind
        size = dream.frame.shape[0] * SCALE
        pygame, window = open_window((size + 260, size), "film=true dreams without one")
    run = Run.create(
        settings.run_root,
        run_name(settings.name, "dream"),
        asdict(settings),
        seeds={"root": settings.seed},
        extra={"checkpoint_sha256": sha256_file(path)},
    )
    results: dict[str, Any] = {"run": str(run.path)}
    if settings.film:
        results["video"] = str(run.videos / "dream.mp4")
        film(dream, run.videos / "dream.mp4", settings)
    else:
        drive(dream, settings, pygame, window)
    cli.finish(results | {"ticks": dream.ticks}, run)


if __name__ == "__main__":
    cli.run_main(main)
