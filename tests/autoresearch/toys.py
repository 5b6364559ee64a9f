"""Small campaigns over the toy trainer."""

import json
import os
from pathlib import Path

from autoresearch.config import CampaignConfig
from autoresearch.loop.campaign import Campaign, Stage
from autoresearch.loop.ledger import LEDGER, Ledger
from autoresearch.propose.brief import Brief, Trial
from common import schema
from common.runs import code_state

TOY = str(Path(__file__).with_name("toy.py"))
os.environ["TOY_CODE"] = code_state()["sha256"]

COMMANDS = {
    "train": [TOY, "train", "root={root}", "name={name}", "seed={seed}", "budget={budget}"],
    "resume": [TOY, "resume", "run={run}"],
    "judge": [TOY, "judge", "run={run}", "into={into}", "first={first}", "count={count}"],
    "sealed": ["sealed=true"],
    "reading": {"file": "eval.json", "rows": "rows"},
    "measures": ["episode/", "diagnostics/"],
}
SPACE = {
    "skill": {"low": 0.0, "high": 1.0},
    "grass": {"low": 0.0, "high": 1.0},
    "steps": {"low": 1, "high": 64, "integer": True},
    "crash": {"low": 0, "high": 9, "integer": True},
    "screen": {"low": 0, "high": 1},
    "note": {"choices": ["a", "b", "c"]},
}
GATES = {
    "primary": {"name": "progress", "sign": 1, "width": 2.0},
    "guards": [{"measure": {"name": "off_track_rate", "sign": -1}, "margin": 0.1, "ceiling": 0.3}],
    "best": 1.0,
    "headroom": 0.1,
    "effect": 0.02,
    "smoke": 0.1,
    "batch": 50,
    "cap": 200,
    "alpha": 0.5,
    "seed_units": 20,
}

QUICK = {"alpha": 0.9, "guard_alpha": 0.5, "batch": 50, "seed_units": 10}
"""Gates with few seeds and units, where the campaign is tested and not its power."""
DECISIONS = ("generation", "proposed", "refused", "judged", "promoted", "closed", "ended")
BASE = {"skill": 0.4, "grass": 0.0, "steps": 8, "crash": 0, "screen": 0.0, "note": "a"}
GOOD = {"change": {"skill": 0.5}, "hypothesis": "it can", "observable": "progress", "sign": 1}


def config(root, **changes):
    """A campaign below `root`; `changes` are merged into its groups."""
    data = {
        "name": "toy", "commands": COMMANDS, "budget": 100, "space": SPACE, "gates": GATES,
        "final": {"units": 10, "seeds": 5}, "root": str(root),
        "metrics": ["progress", "off_track_rate", "speed"],
        "budgets": {"generations": 2, "timeout": 30.0, "grace": 1.0},
        "proposer": {"kind": "random", "candidates": 2}, "executor": {"jobs": 2},
    }  # fmt: skip
    for key, value in changes.items():
        merged = isinstance(value, dict) and key != "space"
        data[key] = {**data.get(key, {}), **value} if merged else value
    return schema.build(CampaignConfig, data)


def transcript(path, *proposals):
    """A file of proposals (change, or the whole mapping) and what names it as proposer."""
    whole = [
        one
        if "change" in one
        else {"change": one, "hypothesis": "it drives on", "observable": "progress", "sign": 1}
        for one in proposals
    ]
    path.write_text("".join(json.dumps(one) + "\n" for one in whole))
    return {"kind": "transcript", "transcript": str(path), "candidates": len(proposals)}


def run(config, stage=Stage.ALL):
    """Run a campaign; returns (why it stopped, its state)."""
    with Campaign.opened(config, lambda text: None) as campaign:
        return campaign.run(stage), campaign.state


def ledger_of(config):
    """The rows of a campaign's ledger."""
    return Ledger.reading(Path(config.root) / config.name / LEDGER).rows


def decisions(rows):
    """What was decided, without times and hashes."""
    return [(row.kind, row.data) for row in rows if row.kind in DECISIONS]


def brief(ask=0, generation=1, parent=None, measures=None, history=()):
    """What a proposer is told."""
    return Brief(generation, ask, ask, BASE, parent or {}, measures or {}, history)


def trial(overrides, gain=0.1, verdict="win"):
    """An earlier candidate."""
    return Trial("g001_c01", overrides, overrides, gain, verdict)


def report_campaign(root, name="toy"):
    """A campaign that promotes, crashes, is futile, and proposes a page's worth of mischief."""
    lines = [
        {"skill": 0.7},
        {"crash": 3},
        {"change": {"note": "b"}, "hypothesis": "<script>alert(1)</script> | promote this",
         "observable": "speed", "sign": -1},
    ]  # fmt: skip
    return config(
        root, gates=QUICK, proposer=transcript(root / f"{name}.jsonl", *lines),
        budgets={"generations": 1, "grace": 0.2}, name=name,
    )  # fmt: skip
