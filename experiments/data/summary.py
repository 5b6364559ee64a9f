"""Describes a data set by numbers and by one picture."""

import math
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from common import cli
from common.files import replacing
from replay.dataset import DataSet
from replay.schema import DIRECTIONS

CORNER_EDGES = (0.0, 0.1, 0.35, 0.7, 1.0, 1.4, math.inf)
"""Edges of the histogram of |corner_angle|, in rad, from straight road to the sharpest bends."""

FRAMES_PER_ROW = 12
_LABEL = 18  # height in pixels of the text above every strip


def summarise(data: DataSet) -> dict[str, Any]:
    """The numbers of one split: for all rows together and for each scenario."""
    scenarios = data.episodes["scenario"]
    return {
        "rows": data.rows,
        "episodes": len(data.episodes),
        "tracks": len(np.unique(data.episodes["track_seed"])),
        "seconds": data.rows / 50 * data.attributes.action_repeat,
        "all": _numbers(data, np.ones(len(data.episodes), bool)),
        "corner_edges": [edge for edge in CORNER_EDGES if math.isfinite(edge)],
        "scenarios": {
            str(name): _numbers(data, scenarios == name) for name in np.unique(scenarios)
        },
    }


def show(name: str, summaries: dict[str, dict[str, Any]]) -> None:
    """Print the summaries of a data set's splits as tables with one row per scenario."""
    bins = [f"≥{edge:g}" for edge in CORNER_EDGES[:-1]]
    columns = ["", "episodes", "rows", "cw", "laps", "speed", "off", "wheels off", *bins]
    for split, summary in summaries.items():
        rows = [
            [
                title,
                *(numbers[key] for key in ("episodes", "rows", "clockwise", "laps", "speed")),
                *(numbers[key] for key in ("off_track", "wheels_off")),
                *numbers["corner_histogram"],
            ]
            for title, numbers in [*summary["scenarios"].items(), ("all", summary["all"])]
        ]
        title = (
            f"{name} {split}: {summary['tracks']} tracks; shares of rows by |corner_angle| (rad)"
        )
        cli.table(columns, rows, title)


def contact_sheet(data: DataSet, path: Path) -> None:
    """Write a PNG with a strip of frames for every scenario, spread evenly over its rows."""
    strips = []
    for name in np.unique(data.episodes["scenario"]):
        episodes = data.episodes[data.episodes["scenario"] == name]
        rows = np.concatenate([np.arange(e["start"], e["start"] + e["length"]) for e in episodes])
        at = rows[np.linspace(0, len(rows) - 1, FRAMES_PER_ROW + 2).astype(int)[1:-1]]
        frames = data.windows(at, 1, ["observation"])["observation"][:, 0]
        picture = np.concatenate(list(np.pad(frames, ((0, 0), (1, 1), (1, 1), (0, 0)))), 1)
        label = np.zeros((_LABEL, picture.shape[1], 3), np.uint8)
        directions = " and ".join(DIRECTIONS[d] for d in np.unique(episodes["direction"]))
        text = f"{name}: {len(episodes)} episodes, {len(rows)} rows, {directions}"
        cv2.putText(label, text, (4, 13), cv2.FONT_HERSHEY_SIMPLEX, 0.42, (255, 255, 255))
        strips += [label, picture]
    sheet = cv2.cvtColor(np.concatenate(strips), cv2.COLOR_RGB2BGR)
    with replacing(path) as temporary:
        if not cv2.imwrite(str(temporary), sheet):
            raise OSError(f"cannot write {path}")


def _numbers(data: DataSet, mask: np.ndarray) -> dict[str, Any]:
    """The numbers of the episodes that `mask`, bool (episodes,), selects."""
    episodes = data.episodes[mask]
    first, last = episodes["start"], episodes["start"] + episodes["length"] - 1
    rows = np.zeros(data.rows, bool)
    for start, end in zip(first, last, strict=True):
        rows[start : end + 1] = True

    def column(name: str) -> np.ndarray:
        return data.column(f"telemetry/{name}")

    corner, progress = np.abs(column("corner_angle")[rows]), column("progress")
    cw = episodes["length"][episodes["direction"] == 1].sum()
    return {
        "episodes": len(episodes),
        "rows": int(rows.sum()),
        "clockwise": float(cw / rows.sum()),
        "laps": float(np.mean(progress[last] - progress[first])),
        "speed": float(column("speed")[rows].mean()),
        "off_track": float(np.mean(column("off_track")[rows] == 1.0)),
        "wheels_off": float(np.mean(column("off_track")[rows] > 0.0)),
        "corner_histogram": (np.histogram(corner, CORNER_EDGES)[0] / len(corner)).tolist(),
    }
