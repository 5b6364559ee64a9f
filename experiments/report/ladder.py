"""The section of REPORT.md on the ladder: every rung, whether it was confirmed or not."""

from collections.abc import Mapping, Sequence
from typing import Any

from common.markdown import estimate, number, provenance, table
from experiments.report.published import EARLIER_RUNGS

PICTURES = (
    ("sharp_turn_ssim", "sharp SSIM"),
    ("gentle_turn_ssim", "gentle SSIM"),
    ("recovery_ssim", "recovery SSIM"),
    ("sharp_turn_yaw_slope", "sharp: yaw slope"),
    ("sharp_turn_forward_slope", "sharp: advance slope"),
    ("sharp_turn_action_sensitivity", "action sensitivity"),
)
TELEMETRY = (
    ("corr_reward@15", "reward"),
    ("corr_speed@15", "speed"),
    ("corr_progress_delta@15", "progress_delta"),
    ("corr_corner_angle@15", "corner_angle"),
    ("corr_lateral_offset@15", "lateral_offset"),
    ("corr_steer@15", "steer"),
    ("corr_yaw_rate@15", "yaw_rate"),
    ("auc_off@15", "off-track AUC"),
)


def ladder_section(records: Sequence[Mapping[str, Any]], notes: str = "") -> str:
    """Tables of hypotheses with verdicts, of pictures and of telemetry, with a row per rung.

    `notes` is hand-written Markdown that is added at the end.
    """
    rows = [_measured(record, PICTURES) for record in records]
    heads = [_measured(record, TELEMETRY) for record in records]
    return "\n\n".join(
        [
            "## World model: the ladder",
            "Every rung changes one thing compared with its parent. It is judged open loop: the "
            "model sees 50 rows of context and then predicts with its prior alone. A geometric "
            "rule selects the clips, on tracks that no training set contains. A verdict says "
            "whether the named measure changed as predicted (paired by clip, with a 95% interval "
            "over clips); it does not say that the rung is good. If there are two training seeds, "
            "the columns of measures show both. The earlier record's figures come from its own "
            "world and data, and from single hand-picked clips.",
            table(
                ["rung", "change", "hypothesis", "predicted", "change measured", "verdict"],
                [_claim(record) for record in records],
            ),
            *_claims(records),
            "Pictures over 50 imagined rows. Image registration measures the yaw and the advance "
            "of the camera in the imagined frames. The slopes compare them with the true ones: 1 "
            "means that the camera moves as the car did, 0 that it stands still. Action "
            "sensitivity is the error with another clip's actions divided by the error with the "
            "true actions.",
            table(["rung", *(title for _, title in PICTURES), "earlier record"],
                  [[*row, EARLIER_RUNGS.get(row[0], "")] for row in rows]),
            "Correlation between imagined and recorded telemetry 15 rows after the context.",
            table(["rung", *(title for _, title in TELEMETRY)], heads),
            "\n".join(f"- {_name(record)}: {provenance(record)}; {_cost(record)}"
                      for record in records),
            *([notes.strip()] if notes else []),
        ]
    )  # fmt: skip


def _claims(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Sentences that compare rungs further apart than parent and child, by sharp_turn's SSIM."""
    claims = [(_name(r), r["details"]["claim"]) for r in records if r["details"].get("claim")]
    return [
        f"{claim['against']} to {name}: the SSIM of sharp_turn changes by "
        f"{estimate(claim.get('change'))}, {claim.get('seeds', 0)} seeds."
        for name, claim in claims
    ]


def _name(record: Mapping[str, Any]) -> str:
    return record["details"]["rung"]["name"]


def _claim(record: Mapping[str, Any]) -> list[str]:
    rung, verdict = record["details"]["rung"], record["details"]["verdict"]
    observable = rung["observable"]
    predicted = ""
    if observable:
        change = "better" if observable["sign"] > 0 else "worse"
        predicted = f"{observable['measure']} of {observable['probe']}: {change} than "
        predicted += rung["parent"]
    return [
        rung["name"], rung["change"], rung["hypothesis"], predicted,
        estimate(verdict.get("change")), verdict.get("verdict") or "",
    ]  # fmt: skip


def _measured(record: Mapping[str, Any], columns: Sequence[tuple[str, str]]) -> list[str]:
    return [_name(record), *(estimate(record["metrics"].get(key)) for key, _ in columns)]


def _cost(record: Mapping[str, Any]) -> str:
    details = record["details"]
    seeds = details["trained"]
    updates = number(seeds[0]["updates"])
    text = f"{len(seeds)} seed{'s' if len(seeds) > 1 else ''}, {updates} updates"
    if seconds := details.get("seconds"):
        training, probes = (seconds[kind] / len(seeds) / 60 for kind in ("training", "probes"))
        text += f", {training:.1f} minutes of training and {probes:.1f} of probes per seed"
    return text
