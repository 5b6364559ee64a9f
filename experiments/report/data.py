"""The data sets in REPORT.md."""

from collections.abc import Mapping, Sequence
from typing import Any

from common.markdown import number, provenance, table

SIZES = {
    "D1": "5,000 / 1,000 per direction",
    "D3_diverse": "12-18 thousand / 2-3 thousand",
    "D4_pilot": "7,000 / 1,400 in 72 / 20 episodes",
}
"""Rows of training / validation in the earlier record, where it gives them."""


def data_section(records: Sequence[Mapping[str, Any]]) -> str:
    """The section on data sets: a table with a row per split."""
    rows = []
    for record in records:
        name = record["settings"]["dataset"]
        for split, summary in record["details"]["splits"].items():
            total, corners = summary["all"], summary["all"]["corner_histogram"]
            rows.append(
                [
                    name, split, f"{summary['rows']:,}", str(summary["episodes"]),
                    str(summary["tracks"]), number(total["clockwise"]), number(total["laps"]),
                    number(total["speed"]), number(total["off_track"]), number(sum(corners[3:])),
                    SIZES.get(name, "") if split == "train" else "",
                ]
            )  # fmt: skip
    header = ["data set", "split", "rows", "episodes", "tracks", "clockwise", "laps per episode",
              "speed", "off the road", "in sharp bends (0.7 rad)", "earlier record"]  # fmt: skip
    commands = [
        f"- {r['settings']['dataset']}: {r['details']['about']}; {provenance(r)}" for r in records
    ]
    return "\n\n".join(["## Data sets", table(header, rows), "\n".join(commands)])
