"""Runs one probe: selects clips, imagines futures, computes numbers, draws pictures, decides."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.errors import UserError
from common.keys import unknown_choice
from common.statistics import bootstrap_interval, bounded_interval
from probes.baselines import BlindRegression
from probes.camera import PictureCamera
from probes.clips import RULES, Clip, ClipRule, committed, find_clips, listing
from probes.film import write_figure, write_film, write_frames
from probes.judge import PAIR_EVERY, CameraMotion, Futures, camera_motion, follow
from probes.metrics import mse, unit
from probes.pictures import judge_baselines, judge_pictures
from probes.telemetry import fit_blind, judge_telemetry
from replay import DataSet
from rssm import WorldModel

Memory = dict[tuple, dict[Any, Any]]
"""A cache for judging several models: results that depend on the clips alone, and fitted blind
regressions."""

MOVING = ("sharp_turn", "gentle_turn", "novel_layout")
"""Probes that measure the camera's motion in the frames."""


@dataclass(frozen=True)
class Thresholds:
    """The conditions under which a probe passes. A bound that does not apply is None.

    Attributes:
        slope: lowest and highest median slope of measured against true motion, for yaw and for
            advance.
        yaw_error: largest median error of the final yaw, as a share of the true yaw.
        above_baselines: SSIM must be above that of repeat-last and of constant motion at every row
            of the horizon.
        correlation: smallest correlation of every telemetry head at the first horizon.
    """

    slope: tuple[float, float] | None = (0.9, 1.1)
    yaw_error: float | None = 0.1
    above_baselines: bool = True
    correlation: float | None = None


@dataclass(frozen=True)
class ProbeConfig:
    """The settings of a probe.

    Attributes:
        context, horizon: number of rows that the model sees, and that it imagines.
        horizons: rows after the context at which telemetry is judged.
        data_root: folder of the data sets.
        dataset, split: data set and split of the clips.
        train: data set whose training split fits the blind regression; None uses the data set named
            in the checkpoint.
        clips: largest number of clips per probe; None uses the number in the probe's rule.
        samples: number of imagined futures per clip; their mean is the forecast of telemetry.
            Pictures show the first one.
        seed: seed of the selection of clips and of the noise.
        film: write videos.
        thresholds: thresholds by probe; the others have their defaults.
    """

    context: int = 50
    horizon: int = 50
    horizons: tuple[int, ...] = (15, 50)
    data_root: str = "data"
    dataset: str = "PROBE"
    split: str = "probe"
    train: str | None = None
    clips: int | None = None
    samples: int = 8
    seed: int = 0
    film: bool = True
    thresholds: dict[str, Thresholds] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 2 <= self.context <= 1000:
            raise ValueError(f"context is 2 to 1000, not {self.context}")
        if not 2 * PAIR_EVERY <= self.horizon <= 1000:
            raise ValueError(
                f"horizon is {2 * PAIR_EVERY} to 1000, two pairs of frames, not {self.horizon}"
            )
        if not 0 <= self.seed < 2**63:
            raise ValueError(f"seed is 0 to 2^63 - 1, not {self.seed}")
        if self.clips is not None and self.clips < 2:
            raise ValueError(f"clips is at least 2, not {self.clips}")
        if not 1 <= self.samples <= 1000:
            raise ValueError(f"samples is 1 to 1000, not {self.samples}")
        if not self.horizons:
            raise ValueError("horizons is empty: name at least one")
        for horizon in self.horizons:
            if not 1 <= horizon <= self.horizon:
                raise ValueError(f"horizons are 1 to {self.horizon}, not {horizon}")


@dataclass(frozen=True)
class Result:
    """The result of a probe, as plain data.

    Attributes:
        name: name of the probe.
        numbers, curves: numbers by part, and curves over the horizon.
        motion: true and measured motion at the end of the horizon, by source of frames and axis.
        per_clip: by measure, one value per clip; larger is always better. The measures are ssim,
            psnr, yaw_slope and forward_slope (-|1 - slope|), and heads such as speed@15 (-|error|).
        clips: the rule and the list of clips.
        verdict: whether each criterion holds.
    """

    name: str
    numbers: dict[str, Any]
    curves: dict[str, dict[str, list[float]]]
    motion: dict[str, dict[str, list[float]]] | None
    per_clip: dict[str, list[float]]
    clips: dict[str, Any]
    verdict: dict[str, bool]

    @property
    def passed(self) -> bool:
        """Whether every criterion of the verdict holds."""
        return all(self.verdict.values())

    def to_dict(self) -> dict[str, Any]:
        """The content of `<probe>.json`."""
        return dataclasses.asdict(self) | {"passed": self.passed}


def run_probe(
    name: str,
    model: WorldModel,
    config: ProbeConfig,
    directory: Path,
    label: str,
    memory: Memory | None = None,
) -> Result:
    """Judge `model` by one probe and write its film and figures into `directory`.

    To judge several models, pass the same `memory` to every call. The part that does not depend on
    the model, about half of the work, is then computed only once.

    Raises:
        UserError: an unknown probe, missing data, or too few clips.
    """
    if name not in RULES:
        raise UserError(str(unknown_choice("probe", name, list(RULES))))
    rule = RULES[name]
    memory = {} if memory is None else memory
    blind = _blind(model, config, memory) if model.heads.telemetry else {}
    if config.clips is not None:
        clips = min(config.clips, rule.clips)
        rule = dataclasses.replace(
            rule, clips=clips, least=max(2, rule.least * clips // rule.clips)
        )
    data, chosen = clips_of(rule, config)
    futures = follow(
        model, data, chosen, config.context, config.horizon,
        samples=config.samples, seed=config.seed,
    )  # fmt: skip
    camera = PictureCamera.of(data.attributes.camera, futures.real.shape[2])
    listed = listing(chosen, rule, data)
    listed["committed"] = committed(name, listed)
    key = (data.sha256, listed["hash"], config.context, config.horizon)
    cache = memory.setdefault(key, {})
    if "baselines" not in cache:
        cache["baselines"] = judge_baselines(futures, camera)
    pictures, curves, per_clip = judge_pictures(futures, camera, cache["baselines"])
    numbers: dict[str, Any] = {"pictures": pictures}
    numbers["action_sensitivity"] = _sensitivity(futures)
    numbers["telemetry"] = judge_telemetry(
        futures, model.heads.telemetry, blind, config.horizons, config.seed
    )
    motion = None
    for head, predicted in futures.predicted.items():
        if head in futures.recorded:
            for horizon in config.horizons:
                error = predicted[:, horizon - 1] - futures.recorded[head][:, horizon - 1]
                per_clip[f"{head}@{horizon}"] = -np.abs(error)
    if name in MOVING:
        if "real" not in cache:
            cache["real"] = _measure_motion(camera, futures, futures.real)
        imagined = _measure_motion(camera, futures, futures.imagined)
        numbers["camera"], motion, slopes = _camera({"imagined": imagined, "real": cache["real"]})
        per_clip |= slopes
    bounds = config.thresholds.get(name, DEFAULTS.get(name, Thresholds(None, None, False)))
    verdict = judge(numbers, curves, bounds, config.horizons[0])
    values_per_clip = {measure: values.tolist() for measure, values in per_clip.items()}
    result = Result(name, numbers, curves, motion, values_per_clip, listed, verdict)
    title = f"{name}, {label}"
    write_figure(directory / f"{name}.png", curves, motion, title)
    write_frames(directory / f"{name}_frames.png", futures, chosen)
    if config.film:
        write_film(directory / f"{name}.mp4", futures, chosen, title)
    return result


def data_of(rule: ClipRule, config: ProbeConfig, *, check: bool = True) -> DataSet:
    """The data set that a rule applies to; `UserError` if it is missing."""
    return DataSet(config.data_root, rule.tracks or config.dataset, config.split, check=check)


def clips_of(rule: ClipRule, config: ProbeConfig) -> tuple[DataSet, list[Clip]]:
    """The data set that a rule applies to, and the clips that it selects."""
    data = data_of(rule, config)
    return data, find_clips(data, rule, config.context, config.horizon, config.seed)


DEFAULTS = {
    "sharp_turn": Thresholds(),
    "gentle_turn": Thresholds(),
    "novel_layout": Thresholds(),
    "recovery": Thresholds(slope=None, yaw_error=None),
    "straight": Thresholds(slope=None, yaw_error=None),
    "faithfulness": Thresholds(None, None, False, correlation=0.9),
}


def judge(
    numbers: Mapping[str, Any],
    curves: Mapping[str, Mapping[str, list[float]]],
    bounds: Thresholds,
    horizon: int,
) -> dict[str, bool]:
    """The verdict: each criterion by name, and whether it holds."""
    verdict: dict[str, bool] = {}
    if bounds.slope is not None:
        low, high = bounds.slope
        for axis in ("yaw", "forward"):
            median = numbers["camera"]["imagined"][f"{axis}_slope"]["mean"]
            verdict[f"{axis}_slope"] = bool(low <= median <= high)
    if bounds.yaw_error is not None:
        error = numbers["camera"]["imagined"]["yaw_final_share"]["mean"]
        verdict["yaw_final_error"] = bool(error < bounds.yaw_error)
    if bounds.above_baselines:
        model = np.array(curves["ssim"]["model"])
        for kind in ("repeat_last", "constant_motion"):
            verdict[f"ssim_above_{kind}"] = bool((model > np.array(curves["ssim"][kind])).all())
    if bounds.correlation is not None:
        for key, row in numbers["telemetry"].items():
            head, _, at = key.partition("@")
            if at == str(horizon) and "model" in row:
                correlation = row["model"]["corr"]["mean"]
                verdict[f"{head}_correlation"] = bool(correlation >= bounds.correlation)
    return verdict


def _measure_motion(camera: PictureCamera, futures: Futures, frames: NDArray) -> CameraMotion:
    return camera_motion(camera, futures.context[:, -1], frames, futures.pose)


def _camera(
    motions: Mapping[str, CameraMotion],
) -> tuple[dict[str, Any], dict[str, dict[str, list[float]]], dict[str, NDArray[np.float64]]]:
    """Summarise the camera motion measured in imagined and in real frames.

    Returns:
        Medians over clips, by source of the frames; true and measured motion at the end of the
        horizon; and -|1 - slope| per clip of the imagined frames.
    """
    table: dict[str, Any] = {}
    points: dict[str, dict[str, list[float]]] = {}
    slopes: dict[str, NDArray[np.float64]] = {}
    for source, measured in motions.items():
        clips = measured.per_clip()
        table[source] = _medians(clips)
        if source == "imagined":
            slopes = {f"{a}_slope": -np.abs(1 - clips[f"{a}_slope"]) for a in ("yaw", "forward")}
        points[source] = {
            axis: [getattr(measured, f"true_{axis}")[:, -1].tolist(),
                   getattr(measured, axis)[:, -1].tolist()]
            for axis in ("yaw", "forward")
        }  # fmt: skip
    return table, points, slopes


def _medians(clips: Mapping[str, NDArray[np.float64]]) -> dict[str, Any]:
    numbers = {}
    for name, values in clips.items():
        finite = values[np.isfinite(values)]
        if len(finite):
            numbers[name] = bootstrap_interval(finite, np.median, resamples=2000).to_dict()
    return numbers


def _sensitivity(futures: Futures) -> dict[str, Any]:
    """Open-loop error with another clip's actions divided by the error with the true actions.

    Both use the same noise.
    """

    def error(imagined: NDArray) -> NDArray[np.float64]:
        pairs = zip(imagined, futures.real, strict=True)
        return np.array([mse(unit(one), unit(real)).mean() for one, real in pairs])

    ratio = error(futures.other) / np.maximum(error(futures.imagined), 1e-9)
    return bounded_interval(ratio, 0).to_dict()


def _blind(
    model: WorldModel, config: ProbeConfig, memory: Memory
) -> dict[int, dict[str, BlindRegression]]:
    """The blind regressions fitted to the model's training data, once per `memory`."""
    name = config.train or model.about.get("dataset")
    if not name:
        raise UserError("the checkpoint names no data set; give train=<data set>")
    try:
        train = DataSet(config.data_root, name, "train", check=False)
        arguments = tuple(model.heads.telemetry), config.context, config.horizons, config.seed
        regressions = memory.setdefault((train.sha256, *arguments), {})
        if not regressions:
            for file, problem in train.verify().damaged.items():
                raise UserError(f"{train.path / file} {problem}")
            regressions |= fit_blind(train, *arguments)
    except UserError as error:
        raise UserError(
            f"{error} (the blind regression is fitted to the training split of this data set; the "
            f"checkpoint was trained on {model.about.get('dataset')}; train=<data set> uses "
            "another)"
        ) from None
    return regressions
