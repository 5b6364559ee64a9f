"""Write REPORT.md, and the figures in README.md, from the committed records."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from common import cli
from common.errors import UserError
from common.files import atomic_write_text
from common.records import RECORDS, read_record
from common.runs import ROOT

DESCRIPTION = """Generate REPORT.md and the marked part of README.md from experiments/records.

    python scripts/report.py              write them
    python scripts/report.py check=true   only say whether they are what the records give"""

BEGIN, END = "<!-- facts:begin -->", "<!-- facts:end -->"

# The earlier record's headline results, each on three episodes of its own world and reward.
EARLIER = "run_008: progress 0.5551, off-track rate 0.036 after 49,152 steps (three episodes)"

DRIVING_COLUMNS = (
    ("progress", "progress"),
    ("native_return", "native return"),
    ("finished", "finished"),
    ("off_track_rate", "off-track rate"),
    ("lap_time", "lap time (s)"),
)


@dataclass
class Settings:
    check: bool = field(default=False, metadata={"help": "write nothing; exit 2 if out of date"})


def number(value: float) -> str:
    """Four significant digits, thousands separated where there are any."""
    if abs(value) >= 10_000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def estimate(value: Any) -> str:
    """A mean with its 95% interval, or a plain number."""
    if value is None:
        return ""
    if not isinstance(value, Mapping):
        return number(value)
    if value.get("low") is None:
        return number(value["mean"])
    return f"{number(value['mean'])} [{number(value['low'])}, {number(value['high'])}]"


def table(header: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def provenance(record: Mapping[str, Any]) -> str:
    code = record["code"]
    commit = (code["commit"] or code["sha256"])[:10]
    machine = record["machine"]
    return (
        f"`{record['command']}`, {record['created'][:10]}, code {commit}, "
        f"{machine['cpu']}, {machine['cores_available']} cores"
    )


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
        metrics = record["metrics"]
        tracks = len(record["settings"]["seeds"])
        rows.append(
            [
                f"{record['name']} ({record['settings']['env']}, {tracks} tracks)",
                f"{metrics['ticks']:,} / {metrics['decisions']:,}",
                number(metrics["seconds"]),
                *(estimate(metrics.get(name)) for name, _ in DRIVING_COLUMNS),
            ]
        )
    header = ["run", "ticks / decisions", "seconds", *(title for _, title in DRIVING_COLUMNS)]
    pictures = [f"![{r['name']}](experiments/records/{r['name']}.png)" for r in records]
    return "\n\n".join(
        [
            "## Driving",
            "Means over tracks with 95% intervals, by the locked evaluator, deterministic policy; "
            f"the earlier record's best, in its own world: {EARLIER}.",
            table(header, rows),
            *(f"- {record['name']}: {provenance(record)}" for record in records),
            *pictures,
        ]
    )


def gather() -> tuple[Mapping | None, Mapping | None, list[Mapping]]:
    """The speed, parity and driving records that exist."""
    driving = []
    for path in sorted(RECORDS.glob("*.json")):
        record = read_record(path.stem)
        if record is not None and "decisions" in record["metrics"]:
            driving.append(record)
    return read_record("speed"), read_record("parity"), driving


def report() -> str:
    speed, parity, driving = gather()
    sections = [
        "# Benchmark record",
        "Generated by `python scripts/report.py` from experiments/records; never edited by hand.",
    ]
    sections += [driving_section(driving)] if driving else []
    sections += [speed_section(speed)] if speed else []
    sections += [parity_section(parity)] if parity else []
    return "\n\n".join(sections) + "\n"


def facts() -> str:
    """The README's figures."""
    speed, parity, driving = gather()
    lines = []
    if speed:
        m = speed["metrics"]
        lines.append(
            f"- **{number(m['ratio_per_core'])} times** CarRacing-v3 on one core, pixels included: "
            f"{number(m['ours'])} frames/s against {number(m['reference'])} "
            "(`python scripts/bench_env.py`)."
        )
    if parity:
        m = parity["metrics"]
        mild, violent = (m[f"dynamics_{kind}_road_100_median"] for kind in ("mild", "violent"))
        lines.append(
            f"- After 100 steps of mild driving the car is {number(mild)} units from Box2D's "
            f"(median; violent driving {number(violent)}), and frames of the same state differ by "
            f"{number(m['pixels_picture_mean'])} of 255 (`python scripts/parity.py`)."
        )
    for record in driving:
        m = record["metrics"]
        lines.append(
            f"- `{record['command']}`: progress {estimate(m['progress'])}, off-track rate "
            f"{estimate(m['off_track_rate'])} on {len(record['settings']['seeds'])} tracks after "
            f"{m['seconds'] / 60:.1f} minutes of training on "
            f"{record['machine']['cores_available']} cores."
        )
    return "\n".join(lines)


def main() -> None:
    settings = cli.parse(Settings, DESCRIPTION)
    readme = ROOT / "README.md"
    before = readme.read_text(encoding="utf-8")
    if before.count(BEGIN) != 1 or before.count(END) != 1:
        raise UserError(f"README.md needs one {BEGIN} and one {END}")
    head, rest = before.split(BEGIN)
    wanted = {
        readme: f"{head}{BEGIN}\n{facts()}\n{END}{rest.split(END)[1]}",
        ROOT / "REPORT.md": report(),
    }
    stale = [
        path.name
        for path, text in wanted.items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]
    if settings.check and stale:
        raise UserError(f"{' and '.join(stale)}: out of date; run python scripts/report.py")
    for path, text in wanted.items():
        if path.name in stale:
            atomic_write_text(path, text)
    cli.finish({"written": ",".join(stale) or "nothing"})


if __name__ == "__main__":
    cli.run_main(main)
