"""Draws the figures from records alone: the same record gives the same picture.

The colours are Okabe and Ito's, which colour-blind readers can tell apart.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
from matplotlib import pyplot

from common.errors import UserError
from common.files import replacing
from experiments.report.kept import REAL, judged_in
from experiments.report.published import PUBLISHED

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DPI = 110
WIDTH = 8.2
"""Width of a figure in inches; at DPI it fills the width of a README."""
BLUE, ORANGE, RED, GREY = "#0072B2", "#E69F00", "#D55E00", "#666666"

ABLATION_MEASURES = (
    ("progress", "progress (laps)"),
    ("native_return", "native return"),
    ("off_track_rate", "off-track rate"),
)

_STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.axisbelow": True,
    "legend.frameon": False,
}


@contextmanager
def picture(path: Path, *shape: int, height: float, **options: Any) -> Iterator[tuple]:
    """Yield (figure, axes) of `shape` rows and columns; saved to `path` when the body is done."""
    matplotlib.use("Agg")
    with matplotlib.rc_context(_STYLE):
        figure, axes = pyplot.subplots(
            *shape, figsize=(WIDTH, height), layout="constrained", squeeze=False, **options
        )
        try:
            yield figure, axes
            with replacing(path) as temporary:
                # Leave out the library's version: otherwise every update would change every file.
                figure.savefig(temporary, dpi=DPI, metadata={"Software": None})
        finally:
            pyplot.close(figure)


def draw_record_curve(title: str, curve: Mapping[str, Any], path: Path) -> None:
    """The figure of one record: progress and off-track rate during training, with intervals."""
    with picture(path, 1, 1, height=3.6) as (_, ((axes,),)):
        if curve:
            _line(axes, curve, "validation/progress", BLUE, "progress, validation tracks")
            _line(axes, curve, "episode/progress", ORANGE, "progress, in training", style="--")
            _line(axes, curve, "validation/off_track_rate", RED, "off-track rate, validation")
            axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
        else:
            axes.text(0.5, 0.5, "nothing was validated", ha="center", transform=axes.transAxes)
        axes.set(xlabel="engine ticks (millions)", ylabel="laps; share of ticks", title=title)
        axes.set_ylim(-0.05, 1.3)  # in training a car may drive more than one lap
        axes.grid(alpha=0.25)


def draw_curves(records: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Learning curves on validation tracks: native return above progress, a column per record."""
    shape = 2, len(records)
    with picture(path, *shape, height=4.6, sharex="col", sharey="row") as (figure, axes):
        figure.suptitle("Validation tracks, deterministic policy", x=0.01, ha="left", fontsize=10)
        for column, record in enumerate(records):
            curve, seeds = record["details"]["curve"], len(record["details"]["seeds"])
            top, bottom = axes[:, column]
            _line(top, curve, "validation/native_return", BLUE)
            _line(bottom, curve, "validation/progress", BLUE)
            band = ", band: 95% interval of the mean" if seeds > 1 else ""
            top.set_title(f"{record['name']}: {seeds} seed{'s' if seeds > 1 else ''}{band}")
            bottom.set(xlabel="engine ticks (millions)")
            for one in (top, bottom):
                one.grid(alpha=0.25)
        # The native return has no fixed range; in practice nothing scores above 1000.
        axes[0, 0].set(ylabel="native return", ylim=(-150, 1000))
        axes[1, 0].set(ylabel="progress (laps)", ylim=(0, 1.05))


def draw_scores(record: Mapping[str, Any], path: Path) -> None:
    """Returns per track in the real CarRacing-v3, beside published results.

    Raises `UserError` if the record holds no evaluation in the real CarRacing-v3.
    """
    returns = dict(judged_in(record, REAL))
    if not returns:
        raise UserError(f"{record['name']} was not judged in the real CarRacing-v3")
    ours = np.concatenate(list(returns.values()))
    policies = f"{len(returns)} seeds" if len(returns) > 1 else f"seed {next(iter(returns))}"
    tracks = len(next(iter(returns.values())))
    if any(len(one) != tracks for one in returns.values()):
        raise UserError(f"{record['name']}: its seeds were judged on different numbers of tracks")
    labels = [f"this repository\n({policies}, {tracks} tracks, v3)"]
    labels += [one.name for one in PUBLISHED]
    with picture(path, 1, 1, height=3.2) as (_, ((axes,),)):
        spread = np.resize(np.linspace(-0.22, 0.22, 11), len(ours))
        axes.plot(ours, spread, "o", color=BLUE, alpha=0.25, markersize=3, markeredgewidth=0)
        low_end = ours.min(), np.percentile(ours, 10)
        _score(axes, 0, ours.mean(), ours.std(ddof=1), low_end, BLUE)
        for y, one in enumerate(PUBLISHED, start=1):
            _score(axes, y, one.mean, one.sd, (one.minimum, one.p10), GREY)
        axes.set_yticks(range(len(labels)), labels)
        axes.set(ylim=(len(labels) - 0.5, -0.5), xlabel="return per episode")
        axes.set_title("CarRacing: mean ± standard deviation; bars: worst and 10th percentile")
        axes.grid(axis="x", alpha=0.25)
        axes.tick_params(axis="y", length=0)


def draw_speed(engine: Mapping[str, Any], training: Mapping[str, Any] | None, path: Path) -> None:
    """Frames/s of the engine and, if there is a record, PPO's steps/s, beside those of others."""
    metrics = engine["metrics"]
    bars = {"this engine": metrics["ours"], "CarRacing-v3": metrics["reference"]}
    panels = [
        (
            f"simulator, one core of {engine['machine']['cpu']}",
            "frames per second, pixels included",
            bars,
        )
    ]
    if training:
        names = {"ours": "this repository", "sb3": "SB3", "sb3_workers": "SB3, subprocesses"}
        measured = training["metrics"]
        bars = {label: measured[name] for name, label in names.items() if name in measured}
        panels.append(("PPO, the same network and batches", "training steps per second", bars))
    with picture(path, 1, len(panels), height=1.8) as (_, (axes,)):
        for one, (title, label, bars) in zip(axes, panels, strict=True):
            names, values = list(bars), list(bars.values())
            patches = one.barh(names, values, color=[BLUE] + [GREY] * (len(bars) - 1), height=0.6)
            one.bar_label(patches, [f"{value:,.0f}" for value in values], padding=3)
            one.invert_yaxis()
            one.set(xlabel=label, title=title, xlim=(0, 1.18 * max(values)))
            one.xaxis.set_major_formatter("{x:,.0f}")
            one.locator_params(axis="x", nbins=4)
            one.tick_params(axis="y", length=0)


def draw_ablations(record: Mapping[str, Any], path: Path) -> None:
    """A row per variant, a panel per measure: a dot per seed, their mean, and the base's mean."""
    variants = record["details"]["variants"]
    names = list(variants)
    height = 1.0 + 0.26 * len(names)
    shape = 1, len(ABLATION_MEASURES)
    with picture(path, *shape, height=height, sharey=True) as (figure, (axes,)):
        for one, (measure, label) in zip(axes, ABLATION_MEASURES, strict=True):
            for y, name in enumerate(names):
                seeds = [row[measure] for row in variants[name]["seeds"]]
                one.plot(seeds, [y] * len(seeds), "o", color=BLUE, alpha=0.4, markersize=4)
                one.plot(np.mean(seeds), y, "|", color=RED, markersize=11, markeredgewidth=2)
            base = np.mean([row[measure] for row in variants["base"]["seeds"]])
            one.axvline(base, color=GREY, linewidth=0.8, linestyle="--")
            one.set(xlabel=label)
            one.grid(axis="x", alpha=0.25)
            one.tick_params(axis="y", length=0)
        axes[0].set_yticks(range(len(names)), [variants[name]["title"] for name in names])
        axes[0].set_ylim(len(names) - 0.5, -0.5)
        ticks = record["settings"]["total_timesteps"]
        caption = f"{ticks:,} ticks each. Dots: seeds; bar: their mean; dashed: the base's mean"
        figure.suptitle(caption, x=0.01, ha="left", fontsize=10)


def _line(
    axes: "Axes",
    curve: Mapping[str, Any],
    name: str,
    colour: str,
    label: str | None = None,
    style: str = "-",
) -> None:
    """Draw the mean of a curve and, where there is one, its interval."""
    millions = np.array(curve["ticks"]) / 1e6
    mean, low, high = (np.array(curve[name][p], np.float64) for p in ("mean", "low", "high"))
    axes.plot(millions, mean, style, color=colour, label=label, linewidth=1.6)
    if np.isfinite(low).any():
        axes.fill_between(millions, low, high, color=colour, alpha=0.18, linewidth=0)


def _score(
    axes: "Axes",
    y: float,
    mean: float,
    sd: float,
    low_end: Sequence[float | None],
    colour: str,
) -> None:
    """Draw one driver's mean and standard deviation, with marks at its low end."""
    axes.errorbar(mean, y, xerr=sd, fmt="D", color=colour, markersize=6, capsize=4, zorder=3)
    marks = [value for value in low_end if value is not None]
    axes.plot(marks, [y] * len(marks), "|", color=colour, markersize=14, markeredgewidth=1.5)
    side = axes.get_yaxis_transform()
    axes.text(1.01, y, f"{mean:.4g} ± {sd:.3g}", transform=side, va="center", color=colour)
