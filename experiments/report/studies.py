"""The sections of REPORT.md on speed and on parity: tables taken directly from their records."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from common.markdown import estimate, number, provenance, table, tables


def speed_section(record: Mapping[str, Any]) -> str:
    metrics, details = record["metrics"], record.get("details", {})
    rows = [
        ["engine, RGB 96x96, one tick per frame", number(metrics["ours"])],
        ["Gymnasium CarRacing-v3", number(metrics["reference"])],
        [
            "ratio per core: median (lowest, highest of the rounds)",
            f"{number(metrics['ratio_per_core'])} ({number(metrics['ratio_low'])}, "
            f"{number(metrics['ratio_high'])})",
        ],
    ]
    parts = [table(["", f"frames/s on {record['machine']['cpu']}"], rows)]
    if "cpus" in details:
        parts.append(cpu_table(details["cpus"]))
    for key, title, unit in (
        ("parts_us_per_frame", "part of a step", "us per frame"),
        ("frames_per_second_by_envs", "environments", "frames/s"),
        ("frames_per_second_by_threads", "threads (256 environments)", "frames/s"),
        ("observations_per_second_by_variant", "variant", "observations/s"),
    ):
        if key in details:
            rows = [[str(name), number(value)] for name, value in details[key].items()]
            parts.append(table([title, unit], rows))
    if "resets" in details:
        rows = [
            [name, *(number(v) for v in row.values())] for name, row in details["resets"].items()
        ]
        header = ["32 environments, 200-tick episodes", "median ms", "p99 ms", "max ms", "mean ms"]
        parts.append(table(header, rows))
    return "\n\n".join(["## Speed", provenance(record), *parts])


def cpu_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """A table with a row for every kind of CPU on which the simulator was timed."""
    columns = ["CPU", "kind", "engine, frames/s", "CarRacing-v3, frames/s"]
    columns += ["ratio", "lowest", "highest", "measured"]
    return table(
        columns,
        [
            [
                row["cpu"],
                row["kind"],
                number(row["ours"]),
                number(row["reference"]),
                *(estimate(row[name]) for name in ("ratio_per_core", "ratio_low", "ratio_high")),
                row["measured"],
            ]
            for row in rows
        ],
    )


def parity_section(record: Mapping[str, Any]) -> str:
    rows = [[name, number(value)] for name, value in record["metrics"].items()]
    return "\n\n".join(
        [
            "## Parity with CarRacing-v3",
            provenance(record),
            "Position errors are in world units (the road is 13.3 wide), pixels in 255ths.",
            table(["measure", "value"], rows),
            "Ours, CarRacing-v3, and eight times their difference:",
            "![frames](experiments/records/parity.png)",
        ]
    )


def study_section(title: str, text: str, record: Mapping[str, Any]) -> str:
    """The section of one study: its metrics, and every table in its details."""
    rows = [[name, estimate(value)] for name, value in record["metrics"].items()]
    parts = [f"## {title}", provenance(record), text, table(["measure", "value"], rows)]
    return "\n\n".join([*parts, *tables(record.get("details", {}))])


ppo_speed_section = partial(
    study_section,
    "Speed of training",
    "Steps/s of training with the same network, batches and epochs. The sides are timed "
    "alternately, in rounds: `ours`, Stable-Baselines3's PPO (`sb3`), and the same with its "
    "environments in subprocesses (`sb3_workers`). Ratios are medians over the rounds, with the "
    "lowest and the highest.",
)
rssm_speed_section = partial(
    study_section,
    "Speed of the world model's training",
    "Frames/s of training (forward, backward, optimiser step), timed alternately with TorchRL's "
    "DreamerV3 parts. Both sides use the same batches of recorded driving, the same number of "
    "threads and the same allocator, and about the same number of floating-point operations per "
    "frame (`flops_ratio`). `psnr` measures the reconstruction of held-out frames after the same "
    "number of training frames; for TorchRL, the best of several learning rates counts. "
    "`best_frames_per_second` was measured with the preset XS.",
)
replay_speed_section = partial(
    study_section,
    "Speed of replay",
    "Random windows are read from storage while the files are in the page cache; processor time "
    "is measured. `wait_share` is the share of a training step spent waiting for its batch.",
)


def ppo_learning_section(record: Mapping[str, Any]) -> str:
    """The section on how long each side trains until it reaches the same progress."""
    metrics, settings = record["metrics"], record["settings"]
    target, seconds = settings["target_progress"], metrics["learning_seconds"]
    if seconds is None:
        verdict = f"Ours did not reach a progress of {target:g} in {settings['budget']:,} ticks."
    elif metrics["learning_seconds_sb3"] is None:
        verdict = (
            f"Ours took {number(seconds)} s of training to reach a progress of {target:g}. "
            f"Stable-Baselines3 was stopped after {number(metrics['learning_at_least'])} times as "
            f"long; it had reached {number(metrics['progress_sb3'])}."
        )
    else:
        verdict = (
            f"Ours took {number(seconds)} s of training to reach a progress of {target:g}; "
            f"Stable-Baselines3 took {number(metrics['learning_ratio'])} times as long."
        )
    text = (
        "Both sides train with their default settings (ours: experiment=carracing_900) in the same "
        "game until they reach the same progress. The locked evaluator measures progress on "
        f"{settings['validation_tracks']} validation tracks. "
    )
    columns = ("seconds", "ticks", "progress", "native_return")
    rows = [
        [side, *(number(point[name]) for name in columns)]
        for side, points in record["details"]["learning"]["curves"].items()
        for point in points
    ]
    heading = ["## Time of learning", provenance(record), text + verdict]
    return "\n\n".join([*heading, table(["side", *columns], rows)])


def ppo_profile_section(record: Mapping[str, Any]) -> str:
    """The section on where training time goes, and on how other settings change it."""
    rows = [[name, estimate(value)] for name, value in record["metrics"].items()]
    profile, variants = record["details"]["profile"], record["details"]["variants"]
    parts = [part for name, values in profile.items() for part in tables(values, name)]
    heading = ["## Where training time goes", provenance(record)]
    return "\n\n".join([*heading, table(["measure", "value"], rows), *parts, *tables(variants)])
