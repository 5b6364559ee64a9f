"""What a finished task measured: an artifact, stored as JSON under the hash of its content."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autoresearch.types.plain import read
from autoresearch.types.task import TaskKind

Rows = Mapping[str, Mapping[str, Any]]
"""Unit to its measures by name; a number, or None where it was not measured."""


@dataclass(frozen=True)
class TrainArtifact:
    """A trained run.

    Attributes:
        config: the whole configuration that it had, dotted key to value.
        code: hash of the source that trained it; all runs of a campaign share one.
        ticks: spent.
        screens: named failures; not 0 where one shows.
        measures: the numbers that a proposer may see.
    """

    config: dict[str, Any]
    code: str
    ticks: int
    screens: dict[str, Any]
    measures: dict[str, Any]
    kind = TaskKind.TRAIN


@dataclass(frozen=True)
class JudgeArtifact:
    """A judgement.

    Attributes:
        evaluator: hash of the judging code; all judgements of a campaign share one.
        rows: measures by unit.
    """

    evaluator: str | None
    rows: dict[str, dict[str, Any]]
    kind = TaskKind.JUDGE


Artifact = TrainArtifact | JudgeArtifact


def ruler(artifact: Artifact) -> str | None:
    """The hash that all of a campaign's artifacts of this kind have to share."""
    return artifact.code if isinstance(artifact, TrainArtifact) else artifact.evaluator


def artifact_of(data: Any) -> Artifact:
    """The artifact whose plain form is `data`; `ValueError` if it is none."""
    if not isinstance(data, Mapping):
        raise ValueError("an artifact is a JSON object")
    kinds = {TaskKind.TRAIN: TrainArtifact, TaskKind.JUDGE: JudgeArtifact}
    return read(kinds[TaskKind(data.get("kind"))], data)
