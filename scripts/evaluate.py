"""Judge a checkpoint by the locked evaluator: prints a table, writes every track to eval.json."""

from dataclasses import asdict
from typing import Literal

from common import cli
from common.display import progress_bar
from common.errors import UserError
from common.files import sha256_file
from common.runs import Run, run_name
from common.schema import config_class
from common.seeding import parse_seeds, split_of

DESCRIPTION = """Drive a policy on fixed tracks, deterministically, and measure it.

    python scripts/evaluate.py checkpoint=runs/ppo/<run>/checkpoints/best.pt
    python scripts/evaluate.py checkpoint=... env=gymnasium_carracing seeds=0-99

Every mean comes with its 95% interval over tracks. Writes eval.json into a new run directory."""


@config_class
class Settings:
    """The settings of the command.

    Attributes:
        checkpoint: a checkpoint file, or a run for its best one.
        env: our world by preset, or Gymnasium's own CarRacing-v3 (extra parity).
        seeds: track seeds, such as 0-99 or 3,7,10-12.
        sealed: allow the sealed tracks 500-999, which a final report opens once.
        direction: driving direction (preset race).
        device: auto, cpu, cuda, mps.
        threads: engine threads, or processes for the real CarRacing-v3.
        run_root: where the run directory goes.
        name: of the run directory <run_root>/evaluate/<name>; empty makes one from the time.
    """

    checkpoint: str
    env: Literal["race", "carracing", "gymnasium_carracing"] = "race"
    seeds: str = "0-99"
    sealed: bool = False
    direction: Literal["ccw", "cw"] = "ccw"
    device: str = "auto"
    threads: int = 1
    run_root: str = "runs"
    name: str = ""

    def __post_init__(self) -> None:
        cli.check_ranges(self, threads=(1, 256))
        if self.direction == "cw" and self.env != "race":
            raise ValueError(f"direction is ccw (or cw where env=race), not cw in {self.env}")


def main() -> None:
    settings = cli.parse(Settings, DESCRIPTION)
    # Late: --help need not wait for torch and numba.
    from common.torch.device import choose_device
    from envs.racing import evaluate as evaluator
    from ppo.diagnostics import diagnose_evaluation
    from ppo.evaluate import headline, load_policy, report, require_extra, resolve_checkpoint

    require_extra(settings.env)
    seeds = parse_seeds(settings.seeds)
    if not settings.sealed and any(split_of(seed) == "sealed" for seed in seeds):
        raise UserError(f"seeds={settings.seeds}: sealed tracks are opened once, by a final report")
    path = resolve_checkpoint(settings.checkpoint)
    device = choose_device(settings.device)
    driver = load_policy(path, device)
    digest = sha256_file(path)
    run = Run.create(
        settings.run_root,
        run_name(settings.name, "evaluate", settings.env),
        asdict(settings),
        seeds={},
        extra={"evaluator": evaluator.EVALUATOR_HASH, "checkpoint_sha256": digest},
    )
    print(f"device {device}")
    with progress_bar(f"driving {len(seeds)} tracks") as progress:
        evaluation = evaluator.evaluate(
            driver,
            seeds,
            env=settings.env,
            direction=settings.direction,
            threads=settings.threads,
            sealed=settings.sealed,
            progress=progress,
        )
    diagnoses = diagnose_evaluation(evaluation)
    report(evaluation.summary, f"{path} on {settings.env}, tracks {settings.seeds}")
    for diagnosis in diagnoses:
        if diagnosis.failed:
            print(diagnosis.warning)
    details = {
        "checkpoint": str(path),
        "checkpoint_sha256": digest,
        "about": driver.about,
        "diagnostics": [asdict(diagnosis) for diagnosis in diagnoses],
        **evaluation.to_dict(),
    }
    file = run.write_json("eval.json", details)
    cli.finish({**headline(evaluation.summary), "eval": str(file)}, run)


if __name__ == "__main__":
    cli.run_main(main)
