"""Takes every decision of a campaign again, from its ledger and artifacts alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoresearch.config import CampaignConfig
from autoresearch.execute.harness import Artifact, Harness, key_of, train_task
from autoresearch.loop.campaign import LEDGER
from autoresearch.loop.ledger import Ledger, Row
from autoresearch.loop.plan import Record, final_step, next_step, training_seed
from autoresearch.loop.state import BASE, State
from autoresearch.propose.proposal import Proposal, combined, digest, objections
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
    check = _Check(directory)
    for row in rows:
        where = f"{directory / LEDGER} line {row.number + 1}"
        try:
            check.row(row, where)
        except (LookupError, TypeError, AttributeError, ValueError) as error:
            raise UserError(f"{where}: no campaign writes such a row ({error!r})") from None
    return Verified(len(rows), len(check.artifacts), check.decisions)


class _Check:
    """Takes in the rows of a ledger one by one."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.state = directory, State()
        self.artifacts: set[str] = set()
        self.decisions = 0
        self.code: str | None = None

    def row(self, row: Row, where: str) -> None:
        if row.kind in ("campaign", "resumed"):
            self.config = schema.build(CampaignConfig, row.data["config"])
            self.harness = Harness(self.config, self.directory)
        elif row.kind == "claimed":
            if row.data["key"] != key_of(row.data["task"]):
                raise UserError(f"{where}: its task is not what its key says")
        elif row.kind == "finished":
            self._artifact(row.data["artifact"], where)
        elif row.kind in ("proposed", "refused"):
            self.decisions += 1
            load = self.harness.load
            _check_proposal(where, row.kind, row.data, self.config, self.state, load)
        elif row.kind in DECIDED and not str(row.data.get("reason", "")).startswith("budget:"):
            self._decision(row, where)
        self.state.apply(row)

    def _artifact(self, name: str, where: str) -> None:
        artifact = self.harness.load(name)
        self.artifacts.add(name)
        if artifact["kind"] == "train":
            self.code = self.code or artifact["code"]
            if artifact["code"] != self.code:
                raise UserError(f"{where}: trained by other code than the runs before it")

    def _decision(self, row: Row, where: str) -> None:
        self.decisions += 1
        follows = final_step if row.kind in ("opened", "final") else next_step
        step = follows(self.config, self.state, self.harness.load)
        if not isinstance(step, Record) or _plain((step.kind, step.data)) != _plain(
            (row.kind, row.data)
        ):
            found = step.data if isinstance(step, Record) else step
            raise UserError(
                f"{where}: it says {row.kind} {_short(row.data)}, but from what was measured "
                f"follows {_short(found)}"
            )


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
