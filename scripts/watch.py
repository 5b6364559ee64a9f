"""Film a policy: one episode as an MP4 that a browser plays."""

from dataclasses import asdict
from pathlib import Path
from typing import Literal

from common import cli
from common.display import progress_bar
from common.errors import UserError
from common.files import sha256_file
from common.runs import ROOT, Run, run_name
from common.schema import config_class
from common.seeding import refuse_sealed

DESCRIPTION = """Film a policy: the large view, the pixels that it sees, its actions and telemetry.

    python scripts/watch.py checkpoint=runs/ppo/<run> track_seed=3
    python scripts/watch.py env=gymnasium_carracing out=drive.mp4

The policy acts deterministically, by the evaluator's rules. The video goes into a new run directory
unless `out` says where."""

CHECKPOINT = ROOT / "experiments" / "checkpoints" / "race.pt"
"""The driver that comes with the repository."""
QUICK_TICKS, QUICK_FPS = 200, 25


@config_class
class Settings:
    """The settings of the command.

    Attributes:
        checkpoint: a checkpoint file, or a run for its best one; by default ours.
        env: our world by preset, or Gymnasium's own CarRacing-v3 (extra parity).
        track_seed: which track.
        direction: driving direction (env=race).
        max_ticks: engine ticks, 50 to a second.
        fps: pictures per second, a divisor of 50.
        out: the MP4 to write, if not in the run directory.
        picture: also save a still, to this .png.
        picture_at: seconds into the drive.
        quick: the first 200 ticks at 25 fps.
        device: auto, cpu, cuda, mps.
        run_root: where the run directory goes.
        name: of the run directory <run_root>/watch/<name>; empty makes one from the time.
    """

    checkpoint: str = ""
    env: Literal["race", "carracing", "gymnasium_carracing"] = "race"
    track_seed: int = 0
    direction: Literal["ccw", "cw"] = "ccw"
    max_ticks: int = 1000
    fps: int = 50
    out: str = ""
    picture: str = ""
    picture_at: float = 5.0
    quick: bool = False
    device: str = "auto"
    run_root: str = "runs"
    name: str = ""

    def __post_init__(self) -> None:
        if self.max_ticks < 1:
            raise ValueError(f"max_ticks is at least 1, not {self.max_ticks}")
        if self.out and Path(self.out).suffix != ".mp4":
            raise ValueError(f"out ends in .mp4, unlike {self.out!r}")
        if self.picture and Path(self.picture).suffix != ".png":
            raise ValueError(f"picture ends in .png, unlike {self.picture!r}")
        if self.fps < 1 or 50 % self.fps:
            raise ValueError(f"fps divides 50, unlike {self.fps}")
        if self.track_seed < 0:
            raise ValueError(f"track_seed is 0 or more, not {self.track_seed}")
        refuse_sealed([self.track_seed])
        if not 0 <= self.picture_at < 1e6:
            raise ValueError(f"picture_at is 0 or more seconds, not {self.picture_at}")


def main() -> None:
    settings = cli.parse(Settings, DESCRIPTION)
    if not settings.checkpoint and not CHECKPOINT.is_file():
        raise UserError(
            f"{CHECKPOINT}: no such file; train a driver with `make train` and name its run, "
            "checkpoint=runs/ppo/<run>"
        )
    # Late: --help need not wait for torch and numba.
    from common.torch.device import choose_device
    from envs.racing.evaluate import EVALUATOR_HASH
    from envs.racing.show.video import record_video, save_still
    from ppo.evaluate import load_policy, resolve_checkpoint

    path = resolve_checkpoint(settings.checkpoint or CHECKPOINT)
    device = choose_device(settings.device)
    driver = load_policy(path, device)
    run = Run.create(
        settings.run_root,
        run_name(settings.name, "watch", settings.env, settings.track_seed),
        asdict(settings),
        seeds={"track": settings.track_seed},
        extra={"evaluator": EVALUATOR_HASH, "checkpoint_sha256": sha256_file(path)},
    )
    name = f"{settings.env}_{settings.track_seed}_{settings.direction}.mp4"
    video = Path(settings.out) if settings.out else run.videos / name
    print(f"device {device}; filming {path} on track {settings.track_seed}", flush=True)
    with progress_bar("filming") as progress:
        facts = record_video(
            driver,
            video,
            env=settings.env,
            track_seed=settings.track_seed,
            direction=settings.direction,
            max_ticks=min(settings.max_ticks, QUICK_TICKS)
            if settings.quick
            else settings.max_ticks,
            fps=QUICK_FPS if settings.quick else settings.fps,
            progress=progress,
        )
    if settings.picture:
        save_still(video, settings.picture_at, Path(settings.picture))
        facts["picture"] = settings.picture
    cli.finish({**facts, "video": str(video)}, run)


if __name__ == "__main__":
    cli.run_main(main)
