"""Small records of every kind that figures and the report read, in the form that scripts write."""

from common.records import write_record
from common.statistics import mean_interval, paired_difference
from experiments.training.averages import common_curve
from experiments.training.finished import CURVES

TRACKS = [0, 1, 2]
EFFORT = {"ticks": 300, "decisions": 75, "seconds": 60.0}
PLACE = {
    "code": {"commit": "c" * 40, "clean": True, "sha256": "s" * 64},
    "machine": {"cpu": "a processor", "cores_available": 2, "threads": {"torch": 1}},
}


def write_training(directory, name, seeds=3, env="gymnasium_carracing", **details):
    """What scripts/aggregate.py writes of `seeds` runs."""
    measures = ("native_return", "progress", "finished", "off_track_rate")
    rows, curves = [], []
    for seed in range(1, seeds + 1):
        values = [900.0 + seed, 850.0 - seed, 700.0]
        curves.append(
            {"ticks": [100, 200, 300]} | {n: [0.1, 0.5, 0.8 + 0.01 * seed] for n in CURVES}
        )
        rows.append(
            {
                "seed": seed,
                "ticks": 300,
                "decisions": 75,
                "seconds": 60.0,
                "validation_score": 880.0,
            }
            | {"metrics": {measure: mean_interval(values).to_dict() for measure in measures}}
            | {"tracks": {"native_return": values}, "curve": curves[-1]}
        )
    estimate = mean_interval([900.0, 850.0, 700.0]).to_dict()
    write_record(
        name,
        command="python train_ppo.py --multirun seed=1,2,3",
        settings={"env": env, "seeds": TRACKS},
        metrics=dict.fromkeys(measures, estimate)
        | {"ticks": 300, "decisions": 75, "seconds": 60.0, "native_return_p10": 700.5},
        details={
            "seeds": rows,
            "curve": common_curve(curves),
            "over_tracks": dict.fromkeys(measures, estimate),
            "best_seed": {"seed": 2, "by": "validation native_return, not by any test track"},
            **details,
        },
        provenance=PLACE,
        directory=directory,
    )


def write_ablations(directory):
    """What scripts/ablate.py writes of a base and one variant."""
    progress = {"base": [0.8, 0.9], "colour": [0.7, 0.75]}
    measures = ("progress", "native_return", "off_track_rate")
    variants = {}
    for name, values in progress.items():
        estimates = {measure: mean_interval(values).to_dict() for measure in measures}
        if name != "base":
            less = paired_difference(values, progress["base"]).to_dict()
            estimates |= {f"{measure}_difference": less for measure in measures}
        rows = [
            {"seed": seed, "decisions": 100, "seconds": 9.0} | dict.fromkeys(measures, value)
            for seed, value in enumerate(values, 1)
        ]
        variants[name] = {"title": f"the {name}", "estimates": estimates, "seeds": rows}
    write_record(
        "ablations",
        command="python scripts/ablate.py record=true",
        settings={"total_timesteps": 400, "seeds": "1-2", "tracks": TRACKS},
        metrics={},
        details={"variants": variants},
        provenance=PLACE,
        directory=directory,
    )


def write_speeds(directory):
    """What the two benchmarks write, of the figures that are read."""
    metrics = {"ours": 9e4, "reference": 220.0, "ratio_per_core": 400.0}
    metrics |= {"ratio_low": 390.0, "ratio_high": 410.0}
    sides = {"ours": {"steps_per_second": 1800.0}, "sb3": {"steps_per_second": 150.0}}
    details = {"speed": {"sides": sides, "rounds": {"ours": [{"total": 1.0}]}}}
    for name, numbers, more in (
        ("speed", metrics, {}),
        ("ppo_speed", {"ours": 1800.0, "sb3": 150.0, "ratio": 12.0}, details),
    ):
        write_record(
            name, command="python scripts/bench.py", settings={}, metrics=numbers, details=more,
            provenance=PLACE, directory=directory,
        )  # fmt: skip


def write_rung(directory, name, parent=None, verdict="refuted"):
    """What experiments/ladder.py writes of a rung."""
    observable = {"probe": "sharp_turn", "measure": "ssim", "sign": 1} if parent else None
    change = mean_interval([-0.02, -0.01, -0.03]).to_dict()
    write_record(
        f"ladder_{name.lower()}",
        command=f"python -m experiments.ladder run={name} seeds=1-2 record=true",
        settings={"scale": "laptop", "seeds": [1, 2]},
        metrics={"sharp_turn_ssim": mean_interval([0.8, 0.82]).to_dict()},
        details={
            "rung": {"name": name, "parent": parent, "change": "longer windows",
                     "hypothesis": "It lasts.", "observable": observable},
            "verdict": {"verdict": verdict, "change": change} if parent else {"verdict": None},
            "claim": {"against": "E3", "change": change, "seeds": 2} if parent else None,
            "trained": [{"seed": 1, "updates": 250}, {"seed": 2, "updates": 250}],
        },
        provenance=PLACE,
        directory=directory,
    )  # fmt: skip
