"""Write REPORT.md, and the marked parts of other documents, from the committed records."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from autoresearch.judge.calibration import CALIBRATIONS
from autoresearch.judge.verify import verify
from autoresearch.report import keep
from autoresearch.report import page as campaign_report
from autoresearch.report.summary import summarize
from common import cli
from common.errors import UserError
from common.files import atomic_write_text
from common.markdown import cores, estimate, number, provenance, table, tables
from common.records import RECORDS, read_record
from common.runs import ROOT
from experiments.report.kept import BUDGETS, REAL, data_sets, ladder, probes, trained
from experiments.report.ladder import ladder_section
from experiments.report.probes import data_section, probes_section

DESCRIPTION = """Generate REPORT.md and the marked parts of documents from experiments/records.

    python scripts/report.py              write them
    python scripts/report.py check=true   only say whether they are what the records give

Campaigns that `python -m autoresearch keep` put into experiments/campaigns get a section each, and
a page and pictures beside their ledgers.

Marked parts stand between <!-- <name>:begin --> and <!-- <name>:end -->: facts in README.md, and
ablations in docs/ppo.md where that has it."""

# The earlier record's headline results, each on three episodes of its own world and reward.
EARLIER = {"progress": 0.5551, "off_track_rate": 0.036, "steps": 49_152}

DRIVING_COLUMNS = (
    ("progress", "progress"),
    ("native_return", "native return"),
    ("finished", "finished"),
    ("off_track_rate", "off-track rate"),
    ("lap_time", "lap time (s)"),
)
ABLATION_COLUMNS = (
    ("progress", "progress"),
    ("native_return", "native return"),
    ("off_track_rate", "off-track rate"),
)


@dataclass
class Settings:
    check: bool = field(default=False, metadata={"help": "write nothing; exit 2 if out of date"})


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
    parts = [table(["", "frames/s"], rows)]
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


def driving_section(records: list[Mapping[str, Any]]) -> str:
    rows = []
    for record in records:
        rows.append([_title(record), *_measures(record["metrics"])])
        seeds = record["details"].get("seeds", [])
        if len(seeds) > 1:
            rows += [
                [f"{record['name']}, seed {row['seed']}", *_measures(row["metrics"] | _effort(row))]
                for row in seeds
            ]
            over_tracks = _estimates(record["details"]["over_tracks"])
            rows.append([f"{record['name']}, over tracks", "", "", *over_tracks])
    header = ["run", "ticks / decisions", "seconds", *(title for _, title in DRIVING_COLUMNS)]
    pictures = [f"![{r['name']}](experiments/records/{r['name']}.png)" for r in records]
    return "\n\n".join(
        [
            "## Driving",
            "By the locked evaluator, deterministic policy, with 95% intervals. Where several "
            "seeds were trained, the first row is their mean with its interval over seeds; a "
            "seed's own row has intervals over tracks, and so has the last one, of tracks averaged "
            "over seeds. The earlier record's best, in its own world: run_008, progress "
            f"{EARLIER['progress']}, off-track rate {EARLIER['off_track_rate']} after "
            f"{EARLIER['steps']:,} steps (three episodes).",
            table(header, rows),
            *(f"- {record['name']}: {provenance(record)}{_best(record)}" for record in records),
            *pictures,
        ]
    )


def budget_section(records: list[Mapping[str, Any]]) -> str:
    """Training with no more experience than the earlier record's best had."""
    steps = EARLIER["steps"]
    rows = [
        [f"earlier record, run_008 ({steps:,} steps)", "", *(number(EARLIER[m]) for m in _BUDGET)]
    ]
    for record in records:
        metrics = record["metrics"]
        cells = [estimate(metrics.get(name)) for name in _BUDGET]
        rows.append([_title(record), f"{metrics['ticks']:,} / {metrics['decisions']:,}", *cells])
    return "\n\n".join(
        [
            "## With the earlier record's budget",
            f"The earlier record's best had {steps:,} steps of a two-car world with another "
            "reward, and three episodes to be judged by. A step of its may be compared with a "
            "decision of ours (an action held for several engine ticks) or, more strictly, with a "
            "tick.",
            table(["run", "ticks / decisions", "progress", "off-track rate"], rows),
            *(f"- {record['name']}: {provenance(record)}" for record in records),
        ]
    )


def ablations_section(record: Mapping[str, Any]) -> str:
    return "\n\n".join(
        [
            "## Ablations",
            provenance(record),
            ablations(record),
            "![ablations](experiments/records/ablations.png)",
        ]
    )


def ablations(record: Mapping[str, Any]) -> str:
    """A row per variant: the mean over seeds, and the difference to the base, paired by seed."""
    settings, variants = record["settings"], record["details"]["variants"]
    rows = []
    for variant in variants.values():
        found, seeds = variant["estimates"], variant["seeds"]
        cells = [
            estimate(found.get(key))
            for name, _ in ABLATION_COLUMNS
            for key in (name, f"{name}_difference")
        ]
        effort = [
            number(sum(row[name] for row in seeds) / len(seeds))
            for name in ("decisions", "seconds")
        ]
        rows.append([variant["title"], *cells, *effort])
    pairs = [part for _, title in ABLATION_COLUMNS for part in (title, "less base's")]
    return "\n\n".join(
        [
            f"{settings['total_timesteps']:,} engine ticks each, training seeds "
            f"{settings['seeds']}, {len(settings['tracks'])} test tracks, the last policy of each "
            "run; means with 95% intervals over seeds, differences paired by seed.",
            table(["variant", *pairs, "decisions", "seconds"], rows),
        ]
    )


def study_section(title: str, told: str, record: Mapping[str, Any]) -> str:
    """A study's figures and, of its details, whatever is a table."""
    rows = [[name, estimate(value)] for name, value in record["metrics"].items()]
    parts = [f"## {title}", provenance(record), told, table(["measure", "value"], rows)]
    return "\n\n".join([*parts, *tables(record.get("details", {}))])


ppo_speed_section = partial(
    study_section,
    "Speed of training",
    "Steps/s of training with the same network, batches and epochs, in turns: `ours`, "
    "Stable-Baselines3's PPO (`sb3`) and the same with its environments in processes "
    "(`sb3_workers`); ratios are medians over the turns, with the lowest and highest.",
)
rssm_speed_section = partial(
    study_section,
    "Speed of the world model's training",
    "Frames/s of training (forward, backward, optimiser step) in turns with TorchRL's DreamerV3 "
    "parts: the same batches of recorded driving, threads and allocator, and about the same "
    "floating-point operations per frame (`flops_ratio`). `psnr` is of held-out frames "
    "reconstructed after as many frames of training, TorchRL's by the best of its learning rates. "
    "`best_frames_per_second` is of the preset XS.",
)
replay_speed_section = partial(
    study_section,
    "Speed of replay",
    "Random windows from storage, the frames in the page cache, by processor time. `wait_share` "
    "is the share of a training step that waits for its batch.",
)


def ppo_learning_section(record: Mapping[str, Any]) -> str:
    """Who needed how long to the same progress, with the validations on the way."""
    metrics, settings = record["metrics"], record["settings"]
    target, mine = settings["target_progress"], metrics["learning_seconds"]
    if mine is None:
        verdict = f"Ours did not reach a progress of {target:g} in {settings['budget']:,} ticks."
    elif metrics["learning_seconds_sb3"] is None:
        verdict = (
            f"Ours took {number(mine)} s of training to a progress of {target:g}; "
            f"Stable-Baselines3 was stopped after {number(metrics['learning_at_least'])} times as "
            f"long, at {number(metrics['progress_sb3'])}."
        )
    else:
        verdict = (
            f"Ours took {number(mine)} s of training to a progress of {target:g}, "
            f"Stable-Baselines3 {number(metrics['learning_ratio'])} times as long."
        )
    told = (
        "Both by their defaults (ours: experiment=carracing_900), to the same progress in the same "
        f"game, by the locked evaluator on {settings['validation_tracks']} validation tracks. "
    )
    columns = ("seconds", "ticks", "progress", "native_return")
    rows = [
        [side, *(number(point[name]) for name in columns)]
        for side, points in record["details"]["learning"]["curves"].items()
        for point in points
    ]
    heading = ["## Time of learning", provenance(record), told + verdict]
    return "\n\n".join([*heading, table(["side", *columns], rows)])


def ppo_profile_section(record: Mapping[str, Any]) -> str:
    """What bounds training, where its time goes, and what other switches make of it."""
    rows = [[name, estimate(value)] for name, value in record["metrics"].items()]
    profile, variants = record["details"]["profile"], record["details"]["variants"]
    apart = [part for name, values in profile.items() for part in tables(values, name)]
    heading = ["## Where training time goes", provenance(record)]
    return "\n\n".join([*heading, table(["measure", "value"], rows), *apart, *tables(variants)])


def report(records: Path = RECORDS, campaigns: Path = keep.CAMPAIGNS) -> str:
    """REPORT.md."""
    driving, budgets = trained(records), [read_record(name, records) for name in BUDGETS]
    budgets = [record for record in budgets if record]
    sections = [
        "# Benchmark record",
        "Generated by `python scripts/report.py` from experiments/records; never edited by hand.",
    ]
    sections += [driving_section(driving)] if driving else []
    sections += [budget_section(budgets)] if budgets else []
    rungs = ladder(records)
    notes = records / "ladder.md"
    told = notes.read_text(encoding="utf-8") if notes.is_file() else ""
    sections += [ladder_section(rungs, told)] if rungs else []
    judged, collected = probes(records), data_sets(records)
    sections += [probes_section(judged)] if judged else []
    sections += [data_section(collected)] if collected else []
    for path in sorted(records.glob(f"{CALIBRATIONS}*.json")):
        sections.append(campaign_report.calibration(read_record(path.stem, records)))
    for place in keep.kept(campaigns):
        where = f"experiments/campaigns/{place.name}"
        sections.append(campaign_report.section(summarize(place), where))
    for name, section in (
        ("ablations", ablations_section),
        ("speed", speed_section),
        ("ppo_speed", ppo_speed_section),
        ("rssm_speed", rssm_speed_section),
        ("replay_speed", replay_speed_section),
        ("ppo_learning", ppo_learning_section),
        ("ppo_profile", ppo_profile_section),
        ("parity", parity_section),
    ):
        record = read_record(name, records)
        sections += [section(record)] if record else []
    return "\n\n".join(sections) + "\n"


def facts(records: Path = RECORDS) -> str:
    """The README's figures."""
    lines = []
    if speed := read_record("speed", records):
        m = speed["metrics"]
        lines.append(
            f"- **{number(m['ratio_per_core'])} times** CarRacing-v3 on one core, pixels included: "
            f"{number(m['ours'])} frames/s against {number(m['reference'])} "
            "(`python scripts/bench_env.py`)."
        )
    if parity := read_record("parity", records):
        m = parity["metrics"]
        mild, violent = (m[f"dynamics_{kind}_road_100_median"] for kind in ("mild", "violent"))
        lines.append(
            f"- After 100 steps of mild driving the car is {number(mild)} units from Box2D's "
            f"(median; violent driving {number(violent)}), and frames of the same state differ by "
            f"{number(m['pixels_picture_mean'])} of 255 (`python scripts/parity.py`)."
        )
    for record in trained(records):
        m, settings = record["metrics"], record["settings"]
        seeds, tracks = len(record["details"].get("seeds", ())), len(settings["seeds"])
        if settings["env"] == REAL:
            drove = (
                f"return {estimate(m['native_return'])} (10th percentile "
                f"{number(m['native_return_p10'])}) on {tracks} tracks of the real CarRacing-v3"
            )
        else:
            drove = (
                f"progress {estimate(m['progress'])}, off-track rate "
                f"{estimate(m['off_track_rate'])} on {tracks} tracks"
            )
        several = f", {seeds} seeds" if seeds > 1 else ""
        each = " each" if seeds > 1 else ""
        lines.append(
            f"- `{record['command']}`: {drove}{several}, after {m['seconds'] / 60:.1f} minutes of "
            f"training{each} on {cores(record)}."
        )
    return "\n".join(lines)


def filled(text: str, name: str, content: str, where: str) -> str:
    """`text` with `content` between its marks for `name`; `UserError` unless it has them once."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    head, found, rest = text.partition(begin)
    if not found or text.count(begin) != 1 or text.count(end) != 1 or end not in rest:
        raise UserError(f"{where} needs one {begin} and, after it, one {end}")
    return f"{head}{begin}\n{content}\n{end}{rest.partition(end)[2]}"


def documents(
    root: Path = ROOT, records: Path = RECORDS, campaigns: Path = keep.CAMPAIGNS
) -> dict[Path, str]:
    """Every generated document with the text that the records and kept campaigns give it."""
    readme, prose = root / "README.md", root / "docs" / "ppo.md"
    before = readme.read_text(encoding="utf-8")
    wanted = {
        readme: filled(before, "facts", facts(records), readme.name),
        root / "REPORT.md": report(records, campaigns),
    }
    for place in keep.kept(campaigns):
        verify(place)
        found = campaign_report.documents(summarize(place))
        wanted |= {place / name: text for name, text in found.items()}
    if prose.is_file() and "<!-- ablations:" in (text := prose.read_text(encoding="utf-8")):
        record = read_record("ablations", records)
        content = ablations(record) if record else "Not run yet: `python scripts/ablate.py`."
        wanted[prose] = filled(text, "ablations", content, "docs/ppo.md")
    return wanted


def main() -> None:
    settings = cli.parse(Settings, DESCRIPTION)
    wanted = documents()
    stale = [
        path
        for path, text in wanted.items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]
    names = [str(path.relative_to(ROOT)) for path in stale]
    if settings.check and stale:
        raise UserError(f"{' and '.join(names)}: out of date; run python scripts/report.py")
    for path in stale:
        atomic_write_text(path, wanted[path])
    cli.finish({"written": ",".join(names) or "nothing"})


_BUDGET = ("progress", "off_track_rate")


def _title(record: Mapping[str, Any]) -> str:
    seeds = len(record["details"].get("seeds", ()))
    several = f", {seeds} seeds" if seeds > 1 else ""
    settings = record["settings"]
    return f"{record['name']} ({settings['env']}, {len(settings['seeds'])} tracks{several})"


def _measures(metrics: Mapping[str, Any]) -> list[str]:
    effort = f"{metrics['ticks']:,} / {metrics['decisions']:,}"
    return [effort, number(metrics["seconds"]), *_estimates(metrics)]


def _estimates(metrics: Mapping[str, Any]) -> list[str]:
    return [estimate(metrics.get(name)) for name, _ in DRIVING_COLUMNS]


def _effort(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in ("ticks", "decisions", "seconds")}


def _best(record: Mapping[str, Any]) -> str:
    details = record["details"]
    if len(details.get("seeds", ())) < 2 or "best_seed" not in details:
        return ""
    best = details["best_seed"]
    return f"; best seed {best['seed']} (by {best['by']})"


if __name__ == "__main__":
    cli.run_main(main)
