"""One training run of a world model, the work behind `train_world_model.py`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import Field

from common.errors import ConfigError, UserError
from common.mirror import LoggerConfig
from common.runs import Run
from common.schema import config_class
from common.seeding import derive
from common.torch.device import tune_allocator
from common.torch.session import Command, Session
from replay import DataSet
from rssm import checkpoint
from rssm.config import (
    DecoderConfig,
    HeadConfig,
    ModelConfig,
    OptimiserConfig,
    RSSMConfig,
    RungConfig,
    ValidationConfig,
)
from rssm.data import DataConfig, MicroBatches, Reader, choose_heads
from rssm.objective import LossConfig
from rssm.readout import ReadoutConfig, fit_heads, readout_updates
from rssm.training import WorldModelTrainer
from rssm.validation import Validator
from rssm.world_model import WorldModel


def summary(row: Mapping[str, Any], time_left: str) -> str:
    """One line of the numbers that tell how training goes."""
    labels = {
        "frames_per_second": "{:,.0f} frames/s",
        "train/loss": "loss {:.1f}",
        "train/image": "image {:.1f}",
        "train/kl": "KL {:.2f}",
        "val/loss": "validation loss {:.1f}",
        "val/psnr": "PSNR {:.2f} dB",
        "val/psnr_open": "open loop {:.2f} dB",
    }
    parts = [form.format(row[name]) for name, form in labels.items() if name in row]
    return "  ".join(filter(None, [parts[0], time_left, *parts[1:]])) if parts else time_left


COMMAND = Command(
    script="train_world_model.py",
    room="rssm",
    budget="updates",
    unit="updates",
    resumable=("resume", "updates", "device", "threads", "display", "logger", "data.root"),
    results=("result.json",),
    summary=summary,
)


@config_class
class WorldModelTrainConfig:
    """Everything about one training run of a world model.

    Attributes:
        rung: the experiment of the ladder that this is, if any.
        scale: of a rung's budget: laptop goes with rssm=xs, record with rssm=record.
        updates: budget, in optimiser steps.
        seed: root of all random numbers.
        device: auto, cpu, cuda, cuda:<index> or mps.
        precision: Lightning's name, such as 32-true or bf16-mixed.
        threads: torch's CPU threads per process; 0 takes what this process may use (this
            setting decides: OMP_NUM_THREADS is ignored).
        processes: ranks that share each batch, started by torchrun.
        warm_start: a world-model checkpoint or run; its weights that fit are copied.
        run_root: folder of all runs.
        name: of the run directory <run_root>/rssm/<name>; empty makes one from the time, and a name
            with a slash, such as mine/<name>, is the whole place below run_root.
        resume: a run directory to go on with.
        log_every: updates between two rows of metrics.
        checkpoint_every: updates between two writes of last.pt.
        display: draw a live progress bar on a terminal; false prints a line now and then.
        profile: so many updates are traced into profile.json of the run; 0 for none.
    """

    network: RSSMConfig = field(default_factory=RSSMConfig)
    heads: HeadConfig = field(default_factory=HeadConfig)
    decoder: DecoderConfig = field(default_factory=DecoderConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    optimiser: OptimiserConfig = field(default_factory=OptimiserConfig)
    data: DataConfig = field(default_factory=DataConfig)
    readout: ReadoutConfig = field(default_factory=ReadoutConfig)
    validation: ValidationConfig = field(default_factory=ValidationConfig)
    logger: LoggerConfig = field(default_factory=LoggerConfig)
    rung: RungConfig = field(default_factory=RungConfig)
    scale: Literal["laptop", "record"] = "laptop"
    updates: Annotated[int, Field(ge=1)] = 2000
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 1
    device: str = "auto"
    precision: Literal["32-true", "bf16-mixed", "16-mixed"] = "32-true"
    threads: Annotated[int, Field(ge=0, le=1024)] = 0
    processes: Annotated[int, Field(ge=1)] = 1
    warm_start: str | None = None
    run_root: str = "runs"
    name: str = ""
    resume: str | None = None
    log_every: Annotated[int, Field(ge=1)] = 20
    checkpoint_every: Annotated[int, Field(ge=0)] = 500
    profile: Annotated[int, Field(ge=0)] = 0
    display: bool = True

    def __post_init__(self) -> None:
        if self.loss.image_every > self.data.length:
            raise ValueError(
                f"loss.image_every is at most data.length, the {self.data.length} rows of a "
                f"window, not {self.loss.image_every}"
            )
        if self.decoder.motion and self.readout.updates:
            raise ValueError(
                "decoder.motion draws from what the heads predict, so they may not change after "
                "the decoder was trained: readout.updates=0"
            )


TrainSession = Session[WorldModelTrainConfig]


def train(
    config: WorldModelTrainConfig, resolved: Mapping[str, Any], overrides: Iterable[str] = ()
) -> dict[str, Any]:
    """Train a world model; returns the numbers of the last line.

    `resolved` is `config` as plain data and `overrides` the command line's: a resume takes only
    those, and else the configuration of the run directory.
    """
    tune_allocator()
    session = Session(COMMAND, config, overrides)
    config, fabric = session.config, session.fabric
    # Whatever can be refused is refused before there is a run directory.
    data, held_out = _open_data(session)
    heads = choose_heads(config.heads, data)
    reader = Reader(data, heads.telemetry, heads.off_track)
    model = make_model(config, reader, heads)
    batches = MicroBatches(
        reader, config.data, config.seed, config.updates, fabric.global_rank, fabric.world_size
    )
    validator = None
    if held_out is not None:
        validator = Validator(held_out, config.validation, config.seed, config.loss)
        Reader(held_out, *model.heads.targets)
    warmed: list[str] = []
    if config.warm_start is not None and not (session.resumed and session.last_checkpoint.exists()):
        warmed = _warm_start(model, config)
    hashes = {"train": data.sha256} | ({"val": held_out.sha256} if held_out else {})
    if session.resumed:
        _check_data(session, hashes)
    with session.open(resolved, [config.data.dataset], {"data": hashes}):
        _describe(session, data, warmed)
        trainer = WorldModelTrainer(
            fabric, model, batches, config.loss, config.optimiser, config.seed,
            validator=validator,
            validate_every=config.validation.every,
            log_every=config.log_every,
            rejects=session.run.path / "nonfinite",
            about={
                "seed": config.seed, "dataset": config.data.dataset, "data_sha256": data.sha256
            },
        )  # fmt: skip
        session.restore(trainer, _read_checkpoint)
        session.fit(trainer)
        return _conclude(session, trainer, reader)


def make_model(config: WorldModelTrainConfig, reader: Reader, heads: HeadConfig) -> WorldModel:
    """An untrained model with these heads and the reader's target statistics."""
    torch.manual_seed(derive(config.seed, "weights"))
    try:
        model = WorldModel(ModelConfig(config.network, heads, config.decoder))
    except ValueError as error:
        raise ConfigError(str(error)) from None
    model.heads.set_statistics(reader.statistics())
    return model


def _open_data(session: TrainSession) -> tuple[DataSet, DataSet | None]:
    """The training split and, if there is validation, the validation split."""
    config = session.config
    try:
        data = config.data.open(config.data.train)
        held_out = config.data.open(config.data.val) if config.validation.every else None
    except UserError as error:
        if not session.resumed:
            raise
        raise UserError(f"{error}; if the data moved, add data.root=<its directory>") from None
    return data, held_out


def _warm_start(model: WorldModel, config: WorldModelTrainConfig) -> list[str]:
    """Copy the weights that the run starts from; what was copied, as lines for people."""
    path = Path(config.warm_start)
    if not path.exists() and config.rung.parent:
        # The ladder's runs are <run_root>/ladder/<scale>/<rung>-s<seed>/checkpoints/final.pt.
        rung = path.parents[1].name.rpartition("-s")[0]
        raise UserError(
            f"{path} is missing: rung {config.rung.name} starts from the weights of {rung}. Train "
            f"that first: python train_world_model.py experiment={rung} seed={config.seed} "
            f"scale={config.scale} (python -m experiments.ladder trains all that it needs)"
        )
    return checkpoint.warm_start(model, path).lines()


def _describe(session: TrainSession, data: DataSet, warmed: Iterable[str]) -> None:
    session.say(f"data {data.path}: {data.rows:,} rows, {len(data.episodes):,} episodes")
    for name, damage in data.skipped.items():
        session.say(f"skipped {name}: {damage}")
    for name in data.unindexed:
        session.say(f"left out {name}: the index of {data.path} has no line for it")
    for line in warmed:
        session.say(line)


def _check_data(session: TrainSession, hashes: Mapping[str, str]) -> None:
    """A run goes on with the data it began with, or it would not end as if never interrupted."""
    config, run = session.config.data, session.run
    began = run.manifest.get("data", {})
    for split, now in hashes.items():
        if began.get(split, now) != now:
            raise UserError(
                f"{run.path} was trained on another {config.dataset} than the one that is now "
                f"in {config.root} ({split} split): bring that back, or begin a new run with "
                f"warm_start={session.last_checkpoint}"
            )


def _read_checkpoint(path: Path) -> dict[str, Any]:
    content = checkpoint.load(path)
    checkpoint.build(content, path)  # for its checks
    return content


def _conclude(session: TrainSession, trainer: WorldModelTrainer, reader: Reader) -> dict[str, Any]:
    """Fit the heads once more, validate, and write final.pt; returns the last line's numbers."""
    if not session.is_main:
        return {}
    config, model, run = session.config, trainer.model, session.run
    if config.readout.updates:
        updates = readout_updates(config.readout, trainer.update)
        session.say(f"fitting the heads once more: {updates:,} small updates")
        fitted = fit_heads(
            model, reader, config.data.length, config.loss, config.readout, config.seed,
            trained_rows=trainer.update * config.data.batch * config.data.length,
            trained_updates=trainer.update,
        )  # fmt: skip
        row = {f"readout/{name}": value for name, value in fitted.items()}
        if trainer.validator is not None:
            row |= trainer.validate()
        session.log({"updates": trainer.update} | row, trainer.update, show=False)
    final = run.checkpoints / "final.pt"
    checkpoint.save(final, model, trainer.about | {"updates": trainer.update})
    results = {"updates": trainer.update, "checkpoint": str(final), "seconds": session.seconds}
    rows = _validations(run)
    return session.finish(results | (rows[-1] if rows else {}))


def _validations(run: Run) -> list[dict[str, float]]:
    """Numbers by name of every validation of the run."""
    rows = [row for row in run.metrics() if "val/loss" in row]
    return [
        {k.removeprefix("val/"): v for k, v in row.items() if k.startswith("val/")} for row in rows
    ]
