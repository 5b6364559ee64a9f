"""Draws a probe's film of real and imagined futures, and its figures."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from common.files import replacing
from probes.clips import Clip
from probes.judge import Futures

PANEL = 288
GAP, TOP, BOTTOM = 12, 40, 152
WIDTH = 3 * PANEL + 4 * GAP
HEIGHT = TOP + PANEL + BOTTOM + (TOP + PANEL + BOTTOM) % 2
FPS = 25
PAPER, INK, DIM = (250, 250, 248), (30, 30, 30), (140, 140, 140)
REAL, IMAGINED = (40, 110, 180), (205, 85, 30)
CURVES = ("speed", "yaw_rate", "corner_angle", "lateral_offset")


def write_film(
    path: str | os.PathLike, futures: Futures, clips: Sequence[Clip], title: str, count: int = 8
) -> None:
    """Write an MP4 of the first `count` clips: real, imagined, difference, and telemetry curves.

    Every clip starts with up to 25 rows of its context. The film runs at half of real time.
    """
    import av  # imported late, because judging without a film does not need it

    with (
        replacing(path) as temporary,
        av.open(temporary, "w", format="mp4", options={"movflags": "+faststart"}) as film,
    ):
        film.metadata["title"] = title
        stream = film.add_stream("libx264", rate=FPS)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        stream.options = {"preset": "veryfast", "crf": "20"}
        stream.codec_context.time_base = Fraction(1, FPS)
        for index in range(min(count, len(clips))):
            for picture in _pictures(futures, index, clips[index], title):
                frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
                film.mux(stream.encode(frame))
        film.mux(stream.encode(None))


def _pictures(futures: Futures, index: int, clip: Clip, title: str):
    context, horizon = futures.context.shape[1], futures.real.shape[1]
    where = f"track {clip.track_seed} {clip.direction} {clip.scenario}"
    for t in range(-min(context, 25), horizon):
        if t < 0:
            real = imagined = futures.context[index, context + t]
            heading = f"{title}: {where}, context"
        else:
            real, imagined = futures.real[index, t], futures.imagined[index, t]
            heading = f"{title}: {where}, {t + 1} ticks imagined"
        picture = np.full((HEIGHT, WIDTH, 3), PAPER, np.uint8)
        panels = (
            ("real", real),
            ("imagined", imagined),
            ("difference", cv2.absdiff(real, imagined)),
        )
        for column, (label, image) in enumerate(panels):
            left = GAP + column * (PANEL + GAP)
            enlarged = cv2.resize(image, (PANEL, PANEL), interpolation=cv2.INTER_NEAREST)
            picture[TOP : TOP + PANEL, left : left + PANEL] = enlarged
            _text(picture, label, (left, TOP - 6), DIM)
        _text(picture, heading, (GAP, 16), INK)
        _curves(picture, futures, index, t)
        yield picture


def _curves(picture: NDArray[np.uint8], futures: Futures, index: int, t: int) -> None:
    """Draw the telemetry of clip `index` up to row `t` of the horizon."""
    names = [name for name in CURVES if name in futures.predicted]
    horizon = futures.real.shape[1]
    for column, name in enumerate(names):
        width = (WIDTH - GAP * (len(names) + 1)) // len(names)
        left, top = GAP + column * (width + GAP), TOP + PANEL + 26
        height = BOTTOM - 36
        pair = futures.recorded[name][index], futures.predicted[name][index]
        low = min(float(values.min()) for values in pair)
        high = max(float(values.max()) for values in pair)
        span = max(high - low, 1e-3)
        cv2.rectangle(picture, (left, top), (left + width, top + height), (225, 225, 222), 1)
        _text(picture, f"{name}  {low:.2g} to {high:.2g}", (left, top - 6), DIM)
        for values, colour in zip(pair, (REAL, IMAGINED), strict=True):
            x = left + np.arange(horizon) * width / max(horizon - 1, 1)
            y = top + height - (values - low) / span * height
            points = np.stack([x, y], -1)[: max(t + 1, 0)]
            if len(points) > 1:
                cv2.polylines(picture, [np.rint(points).astype(np.int32)], False, colour, 2,
                              cv2.LINE_AA)  # fmt: skip


def _text(picture: NDArray[np.uint8], text: str, at: tuple[int, int], colour) -> None:
    cv2.putText(picture, text, at, cv2.FONT_HERSHEY_SIMPLEX, 0.42, colour, 1, cv2.LINE_AA)


def write_frames(
    path: str | os.PathLike, futures: Futures, clips: Sequence[Clip], count: int = 4
) -> None:
    """Write a PNG of the first `count` clips: real frames above imagined ones along the horizon."""
    horizon = futures.real.shape[1]
    times = np.unique(np.linspace(1, horizon, 6).round().astype(int))
    side, gap, left, top = 128, 4, 64, 18
    width = left + (len(times) + 1) * (side + gap)
    strips = []
    for index in range(min(count, len(clips))):
        clip = clips[index]
        strip = np.full((top + 2 * (side + gap), width, 3), PAPER, np.uint8)
        where = f"track {clip.track_seed} {clip.direction} {clip.scenario}: last frame seen"
        _text(strip, f"{where}, then {', '.join(map(str, times))} ticks imagined", (left, 13), INK)
        for row, (label, frames) in enumerate(
            (("real", futures.real), ("imagined", futures.imagined))
        ):
            y = top + row * (side + gap)
            _text(strip, label, (4, y + side // 2), DIM)
            selected = [futures.context[index, -1], *(frames[index, t - 1] for t in times)]
            for column, frame in enumerate(selected):
                x = left + column * (side + gap)
                strip[y : y + side, x : x + side] = cv2.resize(
                    frame, (side, side), interpolation=cv2.INTER_CUBIC
                )
        strips.append(strip)
    picture = cv2.cvtColor(np.concatenate(strips), cv2.COLOR_RGB2BGR)
    with replacing(path) as temporary:
        if not cv2.imwrite(str(temporary), picture):
            raise OSError(f"cannot write {path}")


COLOURS = {
    "model": "#cd551e",
    "posterior": "#7a7a78",
    "repeat_last": "#b9b4a5",
    "constant_motion": "#2e7d6b",
    "true_motion": "#286eb4",
}
LABELS = {
    "model": "imagined",
    "posterior": "decoder, frames seen",
    "repeat_last": "last frame repeated",
    "constant_motion": "last motion continued",
    "true_motion": "true motion applied",
}


def write_figure(
    path: str | os.PathLike,
    curves: Mapping[str, Mapping[str, Sequence[float]]],
    motion: Mapping[str, Any] | None,
    title: str,
) -> None:
    """Write a PNG of SSIM and PSNR over the horizon, and of measured against true camera motion."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    columns = 4 if motion else 2
    figure, axes = plt.subplots(1, columns, figsize=(4.2 * columns, 3.6), layout="constrained")
    for axis, name in zip(axes, ("ssim", "psnr"), strict=False):
        for kind, values in curves[name].items():
            style = "-" if kind == "model" else "--"
            axis.plot(range(1, len(values) + 1), values, style, color=COLOURS[kind],
                      label=LABELS[kind], linewidth=2 if kind == "model" else 1.4)  # fmt: skip
        axis.set_xlabel("ticks imagined")
        axis.set_title("SSIM" if name == "ssim" else "PSNR (dB)", fontsize=10)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].legend(frameon=False, fontsize=8)
    if motion:
        for axis, name, unit in zip(axes[2:], ("yaw", "forward"), ("rad", "units"), strict=True):
            for source, colour in (("real", "#286eb4"), ("imagined", "#cd551e")):
                true, measured = motion[source][name]
                label = f"{source} frames"
                axis.scatter(true, measured, s=12, alpha=0.6, color=colour, label=label)
            limits = [min(axis.get_xlim()[0], axis.get_ylim()[0]),
                      max(axis.get_xlim()[1], axis.get_ylim()[1])]  # fmt: skip
            axis.plot(limits, limits, color="#b9b4a5", linewidth=1, zorder=0)
            axis.set_xlabel(f"true {name} after the horizon ({unit})")
            axis.set_title(f"{name} measured in frames ({unit})", fontsize=10)
            axis.spines[["top", "right"]].set_visible(False)
        axes[2].legend(frameon=False, fontsize=8)
    figure.suptitle(title, fontsize=11)
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=110)
    plt.close(figure)
