"""What REPORT.md says of probes and data sets."""

from experiments.report.data import data_section
from experiments.report.kept import PROBES
from experiments.report.probes import probes_section
from probes.clips import RULES

ESTIMATE = {"mean": 0.5, "low": 0.4, "high": 0.6, "n": 64}
MADE = {
    "command": "python -m probes all checkpoint=P5.pt record=true",
    "created": "2026-01-01T00:00:00+00:00",
    "code": {"commit": "a" * 40, "sha256": "b" * 64, "clean": False},
    "machine": {"cpu": "x", "cores_available": 2, "threads": {"torch": 2}},
}


def side(corr):
    return {"corr": {**ESTIMATE, "mean": corr}, "mae": ESTIMATE, "bias": 0.1, "sign_match": None}


def probe(name, **details):
    kinds = ("model", "posterior", "repeat_last", "constant_motion", "true_motion")
    metrics = ("ssim", "psnr", "mse", "road_iou", "edge_f1", "psnr_new")
    pictures = {metric: dict.fromkeys(kinds, ESTIMATE) for metric in metrics}
    pictures["psnr_new"]["repeat_last"] = None  # nothing was new
    return MADE | {
        "name": f"probe_{name}",
        "settings": {"checkpoint": "P5.pt", "context": 50, "horizon": 50},
        "details": {
            "pictures": pictures,
            "action_sensitivity": ESTIMATE,
            "verdict": {"yaw_slope": True, "forward_slope": False},
            "clips": {"tracks": 40, "directions": {"ccw": 30, "cw": 34}},
            **details,
        },
    }


def test_every_probe_tells_its_verdict_and_its_baselines():
    camera = {"imagined": {"yaw_slope": {**ESTIMATE, "mean": 0.71}}, "real": {}}
    telemetry = {
        "speed@15": {
            "model": side(0.93), "persistence": side(0.8), "blind": side(0.99),
            "beats": {"persistence": True, "blind": False},
        },
        "reward@15": {"model": side(0.4), "beats": {}},
        "off@15": {"auc": None, "brier": 0.01, "share": 0.0, "n": 64},
    }  # fmt: skip
    text = probes_section(
        [probe("sharp_turn", camera=camera), probe("faithfulness", telemetry=telemetry)]
    )
    assert "| sharp_turn | 64 | 40 | yaw_slope | forward_slope |" in text
    assert "| yaw: slope | 0.71 [0.4, 0.6] |  |" in text
    assert "| speed@15 | 0.93 [0.4, 0.6] | 0.8 [0.4, 0.6] | 0.99 [0.4, 0.6] |" in text
    assert text.count("| persistence |\n") == 1
    assert "| off@15 | 0 |  | 0.01 |" in text
    assert "(experiments/records/probe_sharp_turn_frames.png)" in text


def test_the_report_knows_every_probe():
    assert tuple(RULES) == PROBES


def test_data_sets_have_a_row_per_split():
    whole = {
        "clockwise": 0.5, "laps": 0.25, "speed": 45.0, "off_track": 0.1,
        "corner_histogram": [0.5, 0.2, 0.1, 0.1, 0.05, 0.05],
    }  # fmt: skip
    splits = {
        split: {"rows": rows, "episodes": 3, "tracks": 3, "all": whole}
        for split, rows in (("train", 7000), ("val", 1400))
    }
    record = MADE | {
        "name": "data_d4_pilot",
        "settings": {"dataset": "D4_pilot"},
        "details": {"about": "a first set", "splits": splits},
    }
    text = data_section([record])
    assert "| D4_pilot | train | 7,000 | 3 | 3 | 0.5 | 0.25 | 45 | 0.1 | 0.2 | 7,000 / 1" in text
    assert "| D4_pilot | val | 1,400 |" in text and "a first set" in text
