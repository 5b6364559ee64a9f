"""The section of REPORT.md on the probes of the committed world model."""

from collections.abc import Mapping, Sequence
from typing import Any

from common.markdown import estimate, number, provenance, table

METRICS = (
    ("ssim", "SSIM"),
    ("psnr", "PSNR (dB)"),
    ("mse", "MSE"),
    ("road_iou", "IoU of the road"),
    ("edge_f1", "F1 of edges"),
    ("psnr_new", "PSNR of ground not seen before (dB)"),
)
KINDS = (
    ("model", "imagined"),
    ("repeat_last", "last frame repeated"),
    ("constant_motion", "last motion continued"),
    ("true_motion", "true motion applied"),
    ("posterior", "decoder, frames seen"),
)
MOTION = (
    ("yaw_slope", "yaw: slope"),
    ("yaw_correlation", "yaw: correlation"),
    ("yaw_final_error", "yaw: final error (rad)"),
    ("yaw_final_share", "yaw: final error, share"),
    ("forward_slope", "advance: slope"),
    ("forward_correlation", "advance: correlation"),
    ("forward_final_error", "advance: final error (units)"),
    ("forward_final_share", "advance: final error, share"),
)


def probes_section(records: Sequence[Mapping[str, Any]]) -> str:
    """The verdicts of all probes, then for each its pictures, camera motion and telemetry."""
    settings = records[0]["settings"]
    parts = [
        "## World model: probes",
        f"These probes judge experiments/checkpoints/{settings['checkpoint']} on every clip of "
        f"each rule. The model sees {settings['context']} rows of context. It then predicts "
        f"{settings['horizon']} rows with its prior alone, given the recorded actions. The tables "
        "show means with 95% intervals over clips. Image registration measures advance and yaw in "
        "the imagined frames and, for comparison, in the real frames.",
        table(["probe", "clips", "tracks", "passed", "failed"], [_verdict(r) for r in records]),
    ]
    for record in records:
        name, details = record["name"].removeprefix("probe_"), record["details"]
        parts.append(f"### {name}")
        parts.append(provenance(record))
        measured = details["pictures"]
        rows = [
            [title, *(estimate(measured[metric].get(kind)) for kind, _ in KINDS)]
            for metric, title in METRICS
        ]
        parts.append(table([name, *(title for _, title in KINDS)], rows))
        if camera := details.get("camera"):
            rows = [
                [title, *(estimate(camera[source].get(key)) for source in ("imagined", "real"))]
                for key, title in MOTION
            ]
            parts.append(table(["camera, median", "imagined frames", "real frames"], rows))
        if name == "faithfulness":
            parts.append(_telemetry(details["telemetry"]))
        sensitivity = estimate(details["action_sensitivity"])
        parts.append(
            "Error with another clip's actions divided by the error with the true actions: "
            f"{sensitivity}."
        )
        pictures = "experiments/records/" + record["name"]
        parts.append(f"![{name}]({pictures}.png)")
        parts.append(f"![frames of {name}]({pictures}_frames.png)")
    return "\n\n".join(parts)


def _verdict(record: Mapping[str, Any]) -> list[str]:
    clips, verdict = record["details"]["clips"], record["details"]["verdict"]
    count = sum(clips["directions"].values())
    return [
        record["name"].removeprefix("probe_"), str(count), str(clips["tracks"]),
        ", ".join(name for name, passed in verdict.items() if passed),
        ", ".join(name for name, passed in verdict.items() if not passed),
    ]  # fmt: skip


def _telemetry(telemetry: Mapping[str, Any]) -> str:
    """A row per head and horizon, beside persistence and the regression that sees no pixels."""
    rows, labels = [], []
    for key, row in telemetry.items():
        if "model" not in row:
            labels.append([key, number(row["share"]), _or_none(row["auc"]), number(row["brier"])])
            continue
        sides = [row.get(kind) for kind in ("model", "persistence", "blind")]
        wins = [kind for kind, won in row["beats"].items() if won]
        rows.append(
            [
                key,
                *(estimate(side["corr"]) if side else "" for side in sides),
                *(estimate(side["mae"]) if side else "" for side in sides),
                _or_none(row["model"]["sign_match"]),
                number(row["model"]["bias"]),
                ", ".join(sorted(wins)),
            ]
        )
    header = ["head@row", "correlation", "persistence", "blind", "MAE", "persistence", "blind",
              "sign match", "bias", "beats (MAE, paired)"]  # fmt: skip
    off_track = table(["off the road", "share", "AUC", "Brier score"], labels)
    return "\n\n".join([table(header, rows), off_track])


def _or_none(value: float | None) -> str:
    return "" if value is None else number(value)
