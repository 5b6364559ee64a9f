"""Measure the engine against the real CarRacing-v3 and keep the record."""

from dataclasses import asdict
from typing import Any

from common import cli
from common.records import write_record
from common.runs import Run, timestamped
from common.schema import config_class

DESCRIPTION = """Play the same game in our engine and in Gymnasium's CarRacing-v3 (extra parity).

    python scripts/parity.py              full size, several minutes
    python scripts/parity.py quick=true   a few seeds of everything

Tracks, dynamics on road and grass, order of tiles and returns, and pixels of the same states."""

CONSTANT_ACTIONS = {
    "straight": (0.0, 0.5, 0.0),
    "gentle right": (0.1, 0.3, 0.0),
    "gas and brake": (0.0, 0.7, 0.1),
}


@config_class
class Settings:
    """The settings of the command.

    Attributes:
        quick: few seeds, in under 50 seconds.
        tracks: seeds whose tracks are compared.
        drives: seeds per regime and surface.
        returns: seeds per constant action.
        pixel_tracks: tracks whose frames are compared.
        pixel_states: states per track.
        record: keep as experiments/records/parity.json.
        run_root: where the run directory goes.
    """

    quick: bool = False
    tracks: int = 200
    drives: int = 100
    returns: int = 100
    pixel_tracks: int = 20
    pixel_states: int = 50
    record: bool = False
    run_root: str = "runs"

    def __post_init__(self) -> None:
        counts = ("tracks", "drives", "returns", "pixel_tracks", "pixel_states")
        cli.check_ranges(self, **dict.fromkeys(counts, (1, 10_000)))


def measure(settings: Settings) -> tuple[dict[str, Any], dict[str, Any]]:
    import numpy as np

    from envs.racing.reference import parity
    from envs.racing.reference.drive import make_reference

    env = make_reference()
    metrics: dict[str, Any] = {}

    differences = [parity.track_difference(env, seed) for seed in range(settings.tracks)]
    for name in ("points", "polygons", "shades"):
        metrics[f"track_{name}_max"] = max(d[name] for d in differences)
    print(f"tracks 0-{settings.tracks - 1}: {metrics}", flush=True)

    rows = []
    for surface in ("road", "grass"):
        for regime in (parity.mild, parity.violent):
            errors = [
                parity.dynamics_error(env, seed, regime, surface) for seed in range(settings.drives)
            ]
            for mark in (50, 100):
                values = [e[mark] for e in errors]
                name = f"dynamics_{regime.__name__}_{surface}_{mark}"
                metrics[f"{name}_median"] = float(np.median(values))
                metrics[f"{name}_max"] = float(np.max(values))
                rows.append([name, float(np.median(values)), float(np.max(values))])
    cli.table(["position error after steps", "median (units)", "max"], rows)

    rows = []
    for label, action in CONSTANT_ACTIONS.items():
        drives = [parity.visit_order(env, seed, action, 100) for seed in range(settings.returns)]
        ours, theirs = (np.array([d[k] for d in drives]) for k in ("ours", "theirs"))
        key = label.replace(" ", "_")
        metrics[f"return_{key}_difference_of_means"] = abs(float(ours.mean() - theirs.mean()))
        metrics[f"return_{key}_largest_difference"] = float(np.abs(ours - theirs).max())
        metrics[f"order_{key}_seeds_that_differ"] = sum(d["order"] for d in drives)
        metrics[f"timing_{key}_seeds_that_differ"] = sum(d["timing"] >= 0 for d in drives)
        rows.append(
            [
                label,
                ours.mean(),
                theirs.mean(),
                np.abs(ours - theirs).max(),
                sum(d["order"] for d in drives),
                sum(d["timing"] >= 0 for d in drives),
            ]
        )
    columns = [
        "constant action, 100 steps",
        "ours",
        "CarRacing-v3",
        "largest difference",
        "seeds with another order",
        "seeds with another tick",
    ]
    cli.table(columns, rows)

    regions: dict[str, list] = {region: [] for region in parity.PIXEL_REGIONS}
    pictures = []
    for seed in range(settings.pixel_tracks):
        errors, pair = parity.pixel_difference(env, seed, settings.pixel_states, keep=20)
        for region, values in errors.items():
            regions[region].extend(values)
        if pair is not None and len(pictures) < 4:
            pictures.append(pair)
    for region, values in regions.items():
        metrics[f"pixels_{region}_mean"] = float(np.mean(values))
        metrics[f"pixels_{region}_worst_state"] = float(np.max(values))
    cli.table(
        ["mean absolute error of 255", "mean", "worst state"],
        [[region, float(np.mean(v)), float(np.max(v))] for region, v in regions.items()],
    )
    return metrics, {"pictures": pictures}


def picture(pairs: list, path) -> None:
    """Ours, CarRacing-v3 and eight times their difference, one row per state."""
    import cv2
    import numpy as np

    rows = []
    for ours, theirs in pairs:
        difference = np.clip(np.abs(ours.astype(int) - theirs.astype(int)) * 8, 0, 255)
        rows.append(np.hstack([ours, theirs, difference.astype(np.uint8)]))
    large = np.repeat(np.repeat(np.vstack(rows), 3, 0), 3, 1)
    cv2.imwrite(str(path), large[..., ::-1])


def main() -> None:
    settings = cli.parse(Settings, DESCRIPTION)
    if settings.quick:
        small = {"tracks": 20, "drives": 5, "returns": 2, "pixel_tracks": 2, "pixel_states": 22}
        for name, bound in small.items():
            setattr(settings, name, min(getattr(settings, name), bound))
    run = Run.create(settings.run_root, timestamped("parity"), asdict(settings), seeds={})
    metrics, extra = measure(settings)
    if extra["pictures"]:
        picture(extra["pictures"], run.path / "pixels.png")
    if settings.record:
        path = write_record(
            "parity",
            command=cli.command("scripts/parity.py"),
            settings=asdict(settings),
            metrics=metrics,
            artifacts=["parity.png"],
        )
        picture(extra["pictures"], path.with_suffix(".png"))
    cli.finish(metrics, run)


if __name__ == "__main__":
    cli.run_main(main)
