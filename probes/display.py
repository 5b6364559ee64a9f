"""Prints a probe's result as tables on the terminal."""

from typing import Any

from common import cli
from probes.bundle import Result


def show(result: Result) -> None:
    """Print a probe's tables."""
    pictures = result.numbers["pictures"]
    kinds = list(pictures["ssim"])
    rows = [
        [name, *("" if table[kind] is None else table[kind]["mean"] for kind in kinds)]
        for name, table in pictures.items()
    ]
    clips = result.clips
    cli.table(
        ["metric", *kinds], rows,
        f"{result.name}: {len(clips['clips'])} clips on {clips['tracks']} tracks",
    )  # fmt: skip
    if "camera" in result.numbers:
        imagined, real = (result.numbers["camera"][source] for source in ("imagined", "real"))
        rows = [[name, _interval(imagined[name]), _interval(real.get(name))] for name in imagined]
        cli.table(["camera motion (median)", "imagined frames", "real frames"], rows)
    rows = []
    for key, row in result.numbers["telemetry"].items():
        if "model" in row:
            baselines = [
                row[kind]["corr"]["mean"] if kind in row else ""
                for kind in ("persistence", "blind")
            ]
            wins = ", ".join(kind for kind, won in row["beats"].items() if won)
            mae = row["model"]["mae"]["mean"]
            rows.append([key, _interval(row["model"]["corr"]), *baselines, mae, wins])
        else:
            auc = f"AUC {row['auc']:.3f}" if 0 < row["share"] < 1 else "AUC: no two classes"
            rows.append([key, auc, "", "", row["brier"], ""])
    cli.table(["telemetry", "correlation", "persistence", "blind", "MAE or Brier", "beats"], rows)
    for name, passed in result.verdict.items():
        print(f"{'pass' if passed else 'FAIL'}  {result.name} {name}")


def _interval(estimate: dict[str, Any] | None) -> str:
    if estimate is None:
        return ""
    low, high = estimate["low"], estimate["high"]
    bounds = "" if low is None else f" [{low:.3g}, {high:.3g}]"
    return f"{estimate['mean']:.3g}{bounds}"
