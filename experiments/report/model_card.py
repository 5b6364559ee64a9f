"""Writes the model card of a committed driver from its training run."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from common.errors import UserError
from common.files import read_json
from common.runs import Run
from common.seeding import split_of
from experiments.training.finished import FinishedRun

COLUMNS = (
    ("native_return", "native return"),
    ("progress", "progress"),
    ("finished", "finished"),
    ("off_track_rate", "off-track rate"),
    ("lap_time", "lap time (s)"),
)
WORLDS = {
    "race": "our engine, preset `race`",
    "carracing": "our engine, preset `carracing`",
    "gymnasium_carracing": "Gymnasium's CarRacing-v3 itself",
}
_PLACE = ("run_root", "name", "display", "seed", "resume")


def training_command(runs: Sequence[FinishedRun]) -> str:
    """The command that trains `runs` again, without the settings that say where to write."""
    run = runs[0]
    overrides = [a for a in run.manifest["overrides"] if a.partition("=")[0] not in _PLACE]
    seeds = ",".join(str(run.seed) for run in runs)
    several = ["--multirun"] if len(runs) > 1 else []
    processes = run.config["processes"]
    start = ["torchrun", "--nproc-per-node", str(processes)] if processes > 1 else ["python"]
    return shlex.join([*start, "train_ppo.py", *several, *overrides, f"seed={seeds}"])


def read_evaluations(text: str, runs: Sequence[FinishedRun]) -> list[dict[str, Any]]:
    """The contents of eval.json of each named run of scripts/evaluate.py.

    `text` holds run directories, separated by commas. Each result also has the training `seed` of
    the policy that was judged. Raises `UserError` for an evaluation of a policy that is not of
    `runs`, by the hash of its checkpoint.
    """
    seeds = {run.judged["checkpoint_sha256"]: run.seed for run in runs}
    evaluations = []
    for name in filter(None, (part.strip() for part in text.split(","))):
        judged = read_json(Run.open(name).path / "eval.json")
        digest = judged.get("checkpoint_sha256")
        if digest not in seeds:
            raise UserError(f"{name} judged another policy than the best one of these runs")
        if judged["evaluator"] != runs[0].judged["evaluator"]:
            raise UserError(f"{name} was measured by another version of the evaluator")
        evaluations.append({"seed": seeds[digest], **judged})
    return evaluations


def model_card(
    name: str,
    run: FinishedRun,
    candidates: int,
    evaluations: Sequence[Mapping[str, Any]] = (),
) -> str:
    """The model card of `<name>.pt`, the judged policy of `run`, in Markdown.

    `run` is the best of `candidates` training seeds by validation. `evaluations` are further
    evaluations of the same policy, in the form of eval.json.
    """
    path = f"experiments/checkpoints/{name}.pt"
    judged, config, code = run.judged, run.config, run.manifest["code"]
    spec, env = judged["settings"]["spec"], judged["settings"]["env"]
    colours = "grey" if spec["grey"] else "RGB"
    chosen = f" Its seed is the best of {candidates} by validation." if candidates > 1 else ""
    state = {True: "", False: " with uncommitted changes", None: ""}[code["clean"]]
    result, machine = run.result, run.manifest["machine"]
    tests = [judged, *evaluations]
    rows = [_row(_world(one["settings"]["env"], one["rows"]), one["summary"]) for one in tests]
    if run.validation is not None:
        validated = config["evaluation"]["validation_tracks"]
        where = f"validation: {validated} tracks from seed 1000 (they chose it: optimistic)"
        rows.insert(0, _row(where, run.validation))
    header = ["tracks", *(title for _, title in COLUMNS), "worst return", "10th percentile"]
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header), *rows]
    table = "\n".join(lines)
    limits = "\n".join(f"- {line}" for line in _limits(run))
    return f"""# {name}

A driver for {WORLDS[config["env"]["preset"]]}: a convolutional policy that turns pixels into
steer, gas and brake, trained with PPO (`ppo/`).{chosen} The weights are plain tensors; loading them
runs no code. Written by `python scripts/aggregate.py`.

## Input and output

- {spec["frame_stack"]} stacked {colours} frames of {spec["size"]} x {spec["size"]} pixels, uint8.
- Each action is held for {spec["action_repeat"]} engine ticks (50 a second).
- An action is float32 (3,): steer -1 to 1, gas 0 to 1, brake 0 to 1. The deterministic policy, the
  squashed mean, is what was measured.

## Training

| | |
|---|---|
| command | `{training_command([run])}` |
| ticks / decisions | {result["ticks"]:,} / {result["decisions"]:,} |
| seconds | {result["seconds"]:.0f} |
| machine | {machine["cpu"]}, {machine["cores_available"]} cores |
| code | {code["commit"] or "no commit"}{state}; sources {code["sha256"][:16]} |

`about` in the file has the rest, and the record that names this file its whole configuration.

## Results

By the locked evaluator ({judged["evaluator"][:16]}): means with 95% intervals over tracks, one
drive each, standing start, at most 1,000 ticks.

{table}

## Limits

{limits}

## Use

```
python scripts/watch.py checkpoint={path} env={env}
python scripts/evaluate.py checkpoint={path} env={env} seeds=0-99
```

```python
from ppo import load_policy

driver = load_policy("{path}")  # driver.spec says how to feed it
carry = driver.initial(n)  # for n cars
action, carry = driver.act(carry, frames, is_first)  # frames: uint8 (n, *driver.spec.shape)
```

Licence: Apache-2.0, as the repository. SHA-256 of the file: `{judged["checkpoint_sha256"]}`.
"""


def _world(env: str, rows: Sequence[Mapping[str, Any]]) -> str:
    seeds = [row["seed"] for row in rows]
    consecutive = seeds == list(range(seeds[0], seeds[-1] + 1))
    tracks = f"{seeds[0]}-{seeds[-1]}" if consecutive else ", ".join(map(str, seeds))
    splits = sorted({split_of(seed) for seed in seeds})
    return f"{' and '.join(splits)} tracks {tracks}, {WORLDS[env]}"


def _row(title: str, summary: Mapping[str, Any]) -> str:
    cells = [_estimate(summary.get(name)) for name, _ in COLUMNS]
    low_end = [f"{summary[f'native_return_{name}']:.4g}" for name in ("min", "p10")]
    return "| " + " | ".join([title, *cells, *low_end]) + " |"


def _estimate(value: Mapping[str, Any] | None) -> str:
    if value is None:
        return "none"
    if value["low"] is None:
        return f"{value['mean']:.4g}"
    return f"{value['mean']:.4g} [{value['low']:.4g}, {value['high']:.4g}]"


def _limits(run: FinishedRun) -> list[str]:
    rows, config = run.judged["rows"], run.config
    worst = min(rows, key=lambda row: row["native_return"])
    unfinished = sum(not row["finished"] for row in rows)
    left_track = sum(row["left_track"] for row in rows)
    env = config["env"]
    return [
        f"Worst test track: {worst['seed']}, native return {worst['native_return']:.4g}, progress "
        f"{worst['progress']:.3g}; a tenth of the tracks give "
        f"{run.judged['summary']['native_return_p10']:.4g} or less.",
        f"It does not finish {unfinished} of {len(rows)} test tracks in 1,000 ticks, and has all "
        f"wheels off the road at some time on {left_track} of them.",
        f"Trained on tracks of kind `{env['tracks']}`, direction {env['direction']}, road friction "
        f"{env['road_friction']}, cars: {env['num_agents']}; anything else is untested.",
    ]
