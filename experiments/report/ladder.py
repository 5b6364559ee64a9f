"""The ladder of world-model experiments in REPORT.md: every rung, confirmed or not, alike."""

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
    """Hypotheses with verdicts, then pictures, then telemetry; a row per rung in each. `notes` are
    people's, in Markdown."""
    rows = [_measured(record, PICTURES) for record in records]
    heads = [_measured(record, TELEMETRY) for record in records]
    return "\n\n".join(
        [
            "## World model: the ladder",
            "Every rung changes one thing against its parent. It is judged open loop, from 50 rows "
            "of context, by the prior alone, on clips that geometry chose on tracks of no training "
            "set. A verdict is about the predicted change of the named measure, paired by clip, "
            "with a 95% interval over clips; it is not about the rung being good. Columns of "
            "measures have both training seeds where there are two. The earlier "
            "record's figures are of its own world, data and single hand-picked clips.",
            table(
                ["rung", "change", "hypothesis", "predicted", "change measured", "verdict"],
                [_claim(record) for record in records],
            ),
            *_claims(records),
            "Pictures over 50 imagined rows. The slopes are of the yaw and the advance that "
            "registration reads from the imagined frames, over the true ones: 1 is a camera that "
            "moves as the car did, 0 one that stands. Action sensitivity is the error with another "
            "clip's actions over that with the true ones.",
            table(["rung", *(title for _, title in PICTURES), "earlier record"],
                  [[*row, EARLIER_RUNGS.get(row[0], "")] for row in rows]),
            "Correlation of imagined with recorded telemetry 15 rows after the context.",
            table(["rung", *(title for _, title in TELEMETRY)], heads),
            "\n".join(f"- {_name(record)}: {provenance(record)}; {_cost(record)}"
                      for record in records),
            *([notes.strip()] if notes else []),
        ]
    )  # fmt: skip


def _claims(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Sentences on rungs that lie further apart, by the SSIM of sharp_turn."""
    found = [(_name(r), r["details"]["claim"]) for r in records if r["details"].get("claim")]
    return [
        f"{claim['against']} to {name}: the SSIM of sharp_turn changes by "
        f"{estimate(claim.get('change'))}, {claim.get('seeds', 0)} seeds."
        for name, claim in found
    ]


def _name(record: Mapping[str, Any]) -> str:
    return record["details"]["rung"]["name"]


def _claim(record: Mapping[str, Any]) -> list[str]:
    rung, found = record["details"]["rung"], record["details"]["verdict"]
    observable = rung["observable"]
    predicted = ""
    if observable:
        way = "better" if observable["sign"] > 0 else "worse"
        predicted = f"{observable['measure']} of {observable['probe']} {way} than {rung['parent']}"
    return [
        rung["name"], rung["change"], rung["hypothesis"], predicted,
        estimate(found.get("change")), found.get("verdict") or "",
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
