"""Makes every decision of a campaign again, from its ledger and artifacts alone."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoresearch.config import CampaignConfig
from autoresearch.execute.artifacts import ArtifactStore
from autoresearch.judge.admission import objections
from autoresearch.loop.ledger import LEDGER, Ledger, Row, RowKind
from autoresearch.loop.measured import training_seed
from autoresearch.loop.plan import final_step, next_step
from autoresearch.loop.state import State
from autoresearch.loop.steps import Record
from autoresearch.types.artifact import TrainArtifact
from autoresearch.types.overrides import combined, digest
from autoresearch.types.proposal import Proposal
from autoresearch.types.run import BASE
from autoresearch.types.task import TrainTask, task_of
from common import schema
from common.errors import UserError
from common.files import to_plain

FINAL = (RowKind.OPENED, RowKind.FINAL)
DECIDED = (
    *(RowKind.GENERATION, RowKind.JUDGED, RowKind.PROMOTED, RowKind.CLOSED, RowKind.ENDED),
    *FINAL,
)


@dataclass(frozen=True)
class Verified:
    """How many rows, artifacts and decisions were checked."""

    rows: int
    artifacts: int
    decisions: int


def verify(directory: Path) -> Verified:
    """Check hashes and make every decision again; `UserError` names the first difference."""
    rows = Ledger.reading(directory / LEDGER).rows
    if not rows or rows[0].kind != RowKind.CAMPAIGN:
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
        self.state, self.store = State(), ArtifactStore(directory / "artifacts")
        self.artifacts: set[str] = set()
        self.decisions = 0
        self.code: str | None = None

    def row(self, row: Row, where: str) -> None:
        if row.kind in (RowKind.CAMPAIGN, RowKind.RESUMED):
            self.config = schema.build(CampaignConfig, row.data["config"])
        elif row.kind == RowKind.CLAIMED:
            if row.data["key"] != task_of(row.data["task"], self.state.training).key:
                raise UserError(f"{where}: its task is not what its key says")
        elif row.kind == RowKind.FINISHED:
            self._artifact(row.data["artifact"], where)
        elif row.kind in (RowKind.PROPOSED, RowKind.REFUSED):
            self.decisions += 1
            self._proposal(row, where)
        elif row.kind in DECIDED and not str(row.data.get("reason", "")).startswith("budget:"):
            self.decisions += 1
            self._decision(row, where)
        self.state.apply(row)

    def _artifact(self, name: str, where: str) -> None:
        artifact = self.store.load(name)
        self.artifacts.add(name)
        if isinstance(artifact, TrainArtifact):
            self.code = self.code or artifact.code
            if artifact.code != self.code:
                raise UserError(f"{where}: trained by other code than the runs before it")

    def _decision(self, row: Row, where: str) -> None:
        follows = final_step if row.kind in FINAL else next_step
        step = follows(self.config, self.state, self.store.load)
        decided = step.data if isinstance(step, Record) else step
        if not isinstance(step, Record) or (step.kind, _plain(step.data)) != (
            row.kind,
            _plain(row.data),
        ):
            raise UserError(
                f"{where}: it says {row.kind} {_short(row.data)}, but from what was measured "
                f"follows {_short(decided)}"
            )

    def _proposal(self, row: Row, where: str) -> None:
        """G0 again. A proposal itself cannot be made again; the decision about it can."""
        data, state = row.data, self.state
        if data["proposal"] is None:
            return
        proposal, parent = Proposal(**data["proposal"]), state.overrides(state.generation.parent)
        task = TrainTask(BASE, {}, training_seed(self.config, 1, 0), self.config.budget)
        base = self.store.load(state.runs[task.key].artifact).config
        reasons = objections(proposal, self.config, parent, base, state.tried)
        if reasons != data.get("reasons", []):
            says = "; ".join(reasons) or "nothing against it"
            raise UserError(f"{where}: {row.kind}, but G0 says: {says}")
        if row.kind == RowKind.PROPOSED:
            overrides = combined(parent, proposal.change, base)
            if overrides != data["overrides"] or digest(overrides) != data["digest"]:
                raise UserError(f"{where}: its overrides are not what was proposed")


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(to_plain(value)))


def _short(value: Any) -> str:
    text = str(to_plain(value))
    return text if len(text) <= 200 else f"{text[:197]}..."
