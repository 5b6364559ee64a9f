"""Takes every decision of a campaign again, from its ledger and artifacts alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoresearch.campaign import LEDGER
from autoresearch.config import CampaignConfig
from autoresearch.harness import Artifact, Harness, key_of, train_task
from autoresearch.ledger import Ledger
from autoresearch.plan import Record, final_step, next_step, training_seed
from autoresearch.proposal import Proposal, combined, digest, objections
from autoresearch.state import BASE, State
from common import schema
from common.errors import UserError
from common.files import to_plain

DECIDED = ("generation", "judged", "promoted", "closed", "ended", "opened", "final")


@dataclass(frozen=True)
class Verified:
    """What was checked.

    Attributes:
        rows, artifacts, decisions: how many.
    """

    rows: int
    artifacts: int
    decisions: int


def verify(directory: Path) -> Verified:
    """Check hashes and recompute every verdict; `UserError` names the first difference."""
    rows = Ledger.reading(directory / LEDGER).rows
    if not rows or rows[0].kind != "campaign":
        raise UserError(f"{directory / LEDGER}: the first row does not begin a campaign")
    state, config = State(), None
    artifacts, decisions = set(), 0
    for row in rows:
        where = f"{directory / LEDGER} line {row.number + 1}"
        if row.kind in ("campaign", "resumed"):
            config = schema.build(CampaignConfig, row.data["config"])
            harness = Harness(config, directory)
        elif row.kind == "finished":
            harness.load(row.data["artifact"])
            artifacts.add(row.data["artifact"])
        elif row.kind in ("proposed", "refused"):
            decisions += 1
            _check_proposal(where, row.kind, row.data, config, state, harness.load)
        elif row.kind in DECIDED and not str(row.data.get("reason", "")).startswith("budget:"):
            decisions += 1
            follows = final_step if row.kind in ("opened", "final") else next_step
            step = follows(config, state, harness.load)
            if not isinstance(step, Record) or _plain((step.kind, step.data)) != _plain(
                (row.kind, row.data)
            ):
                found = step.data if isinstance(step, Record) else step
                raise UserError(
                    f"{where}: it says {row.kind} {_short(row.data)}, but from what was measured "
                    f"follows {_short(found)}"
                )
        state.apply(row)
    return Verified(len(rows), len(artifacts), decisions)


def _check_proposal(
    where: str,
    kind: str,
    data: dict[str, Any],
    config: CampaignConfig,
    state: State,
    load: Callable[[str], Artifact],
) -> None:
    """G0 again. What a proposer said cannot be recomputed; what was made of it can."""
    if data["proposal"] is None:
        return
    proposal, parent = Proposal(**data["proposal"]), state.overrides(state.generation.parent)
    seed = training_seed(config, 1, 0)
    run = state.runs[key_of(train_task(BASE, {}, seed, config.budget))]
    base = load(run.artifact)["config"]
    reasons = objections(proposal, config, parent, base, state.tried)
    if reasons != data.get("reasons", []):
        told = "; ".join(reasons) or "nothing against it"
        raise UserError(f"{where}: {kind}, but G0 says: {told}")
    if kind == "proposed":
        overrides = combined(parent, proposal.change, base)
        if overrides != data["overrides"] or digest(overrides) != data["digest"]:
            raise UserError(f"{where}: its overrides are not what was proposed")


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(to_plain(value)))


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 200 else f"{text[:197]}..."
