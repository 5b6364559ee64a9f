"""Writes the model card of a committed world model from its checkpoint and its records."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from common.errors import UserError
from common.files import sha256_file
from common.markdown import estimate, mark, number, provenance, table
from common.records import RECORDS, read_record
from experiments.report.kept import probes
from experiments.report.ladder import TELEMETRY

COLUMNS = (("ssim", "SSIM"), ("psnr", "PSNR (dB)"))


def world_model_card(checkpoint: Path, directory: Path = RECORDS) -> str | None:
    """The model card of a rung's checkpoint in Markdown, or None if the rung has no records.

    The file is named after the rung. Raises `UserError` if the records of the probes belong to
    another file.
    """
    from rssm.checkpoint import load  # late: torch takes seconds to start

    name = checkpoint.stem
    rung, judged = read_record(f"ladder_{name.lower()}", directory), probes(directory)
    if rung is None or not judged:
        return None
    digest, content = sha256_file(checkpoint), load(checkpoint)
    for record in judged:
        if record["settings"]["checkpoint_sha256"] != digest:
            raise UserError(
                f"{record['name']} judged another {checkpoint.name}: python -m probes all "
                f"checkpoint={checkpoint} record=true"
            )
    about, model = content["about"], content["model"]
    heads, size = model["heads"], model["frame_size"]
    weights = sum(value.numel() for value in content["weights"].values())
    data = read_record(f"data_{about['dataset'].lower()}", directory)
    path = f"experiments/checkpoints/{checkpoint.name}"
    return f"""# {name}

A world model: an RSSM with {number(weights)} weights. It reads recorded driving and predicts what
comes next: pictures, reward and telemetry. It is rung {name} of the ladder (docs/world_model.md).
The weights are plain tensors; loading them runs no code. Written by `python scripts/report.py`.

## Input and output

- Frames of {size} x {size} pixels, RGB, uint8, one per engine tick (50 a second).
- The action that led to each frame, float32 (3,): steer, gas, brake.
- Heads: reward, continuation, {", ".join(heads["telemetry"])}{_off_track(heads)}.

## Training

| | |
|---|---|
| rung | {rung["details"]["rung"]["change"]}; its parent is {rung["details"]["rung"]["parent"]} |
| updates | {about["updates"]:,}, in addition to its parents'; training seed {about["seed"]} |
| data | {about["dataset"]}, sha256 {about["data_sha256"][:16]}{_collected(data)} |
| made by | {provenance(rung)}{_uncommitted([rung])} |

## Results

The probes judge every clip of each rule, with {_window(judged)}.
No training set contains the tracks of the clips. The tables show means with 95% intervals over
clips. "Last frame" is a baseline that repeats the last frame of the context.

{_pictures(judged)}

{_telemetry(judged)}

Judged by {provenance(judged[0])}.{_uncommitted(judged)}
REPORT.md has all numbers, also of the other rungs.

## Limits

{_limits(judged)}
- It was trained with one car, CarRacing's camera and CarRacing's kind of tracks. Anything else is
  untested.

## Use

```
python scripts/dream.py checkpoint={path}
python -m probes sharp_turn checkpoint={path}
```

```python
from rssm import load_world_model

model = load_world_model("{path}")
observed = model.observe(frames, actions, is_first)  # (B, T, 96, 96, 3) uint8, (B, T, 3), (B, T)
```

Licence: Apache-2.0, as the repository. SHA-256 of the file: `{digest}`.
"""


def _off_track(heads: Mapping[str, Any]) -> str:
    return ", all wheels off the road" if heads["off_track"] else ""


def _collected(data: Mapping[str, Any] | None) -> str:
    return f" (`{data['command']}`)" if data else ""


def _uncommitted(records: Sequence[Mapping[str, Any]]) -> str:
    if not any(map(mark, records)):
        return ""
    return f" {mark(next(filter(mark, records)))} marks code with uncommitted changes."


def _window(judged: Sequence[Mapping[str, Any]]) -> str:
    settings = judged[0]["settings"]
    return (
        f"{settings['context']} rows of context, then {settings['horizon']} rows predicted by the "
        "prior alone"
    )


def _pictures(judged: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    for record in judged:
        pictures = record["details"]["pictures"]
        cells = [
            estimate(pictures[metric][kind])
            for metric, _ in COLUMNS
            for kind in ("model", "repeat_last")
        ]
        verdict = "passed" if record["metrics"]["passed"] else "failed"
        rows.append([record["name"].removeprefix("probe_"), *cells, verdict])
    header = [part for _, title in COLUMNS for part in (title, f"{title}, last frame")]
    return table(["probe", *header, "verdict"], rows)


def _telemetry(judged: Sequence[Mapping[str, Any]]) -> str:
    """Correlations of the heads 15 rows after the context, from the probe `faithfulness`."""
    (record,) = (one for one in judged if one["name"] == "probe_faithfulness")
    rows = []
    for key, title in TELEMETRY:
        measure, _, head = key.partition("_")
        row = record["details"]["telemetry"].get(head)
        if row is None:
            continue
        if measure == "corr":
            blind = estimate(row["blind"]["corr"]) if "blind" in row else ""
            rows.append([title, estimate(row["model"]["corr"]), blind])
        else:
            rows.append([title, number(row["auc"]), ""])
    header = ["15 rows after the context", "correlation", "regression that sees no pixels"]
    return table(header, rows)


def _limits(judged: Sequence[Mapping[str, Any]]) -> str:
    lines = []
    for record in judged:
        failed = [name for name, passed in record["details"]["verdict"].items() if not passed]
        if failed:
            name = record["name"].removeprefix("probe_")
            lines.append(f"- It fails the probe {name}: {', '.join(failed)}.")
    return "\n".join(lines)
