"""Applies the gates to the candidates of a generation, one decision at a time.

Each gate is a method that returns the next verdict as a `Record`, or None if it has none to give.
"""

from __future__ import annotations

from collections.abc import Callable

from autoresearch.judge import gates
from autoresearch.loop.ledger import RowKind
from autoresearch.loop.measured import (
    RUNG_UNITS,
    SCREEN_UNITS,
    SEED_UNITS,
    Measurements,
    Needed,
    RunFailed,
    training_seed,
)
from autoresearch.loop.state import Candidate, Generation
from autoresearch.loop.steps import Record
from autoresearch.types.artifact import Rows
from autoresearch.types.run import BASE, Failure
from autoresearch.types.task import JudgeTask, Task
from autoresearch.types.verdict import (
    FailedRun,
    Gate,
    MechanismVerdict,
    NotTried,
    Outcome,
    ScreenVerdict,
    SeedsVerdict,
    Verdict,
    rung_name,
)

Decide = Callable[[Generation], Record | None]


class Gatekeeper:
    """The gates of one campaign.

    Args:
        measured: its tasks and their results.
    """

    def __init__(self, measured: Measurements) -> None:
        self.measured, self.config, self.state = measured, measured.config, measured.state
        self.gates = measured.config.gates

    def in_order(self) -> list[Decide]:
        """Every gate from G1 to G5."""
        rungs = [
            self._rung_decision(rung_name(index), share)
            for index, share in enumerate(self.gates.halving, 1)
        ]
        return [self.smoke, *rungs, self.screen, self.seeds, self.mechanism]

    def smoke(self, generation: Generation) -> Record | None:
        """G1: a first run on a small share of the budget."""
        alive = self._alive(generation, Gate.SMOKE)
        if not alive:
            return None
        share = self.gates.smoke or 1.0
        run = self.measured.screen_run
        control, base = run(generation, generation.parent, share), run(generation, BASE, share)
        tasks = [run(generation, candidate.id, share) for candidate in alive]
        self.measured.need([control, base, *tasks])
        candidate, task = alive[0], tasks[0]
        training = self.measured.training
        try:
            verdict: Verdict = gates.smoke(
                training(task), training(control), training(base).config, candidate.overrides
            )
        except RunFailed as failed:
            verdict = FailedRun.of(failed.failure, failed.detail)
        return _judged(candidate, Gate.SMOKE, verdict)

    def screen(self, generation: Generation) -> Record | None:
        """G3: is the checkpoint better on fresh units?"""
        alive = self._alive(generation, Gate.SCREEN)
        verdicts: dict[str, Verdict] = {}
        needed: list[Task] = []
        for candidate in alive:
            try:
                verdicts[candidate.id] = self._screened(generation, candidate)
            except Needed as more:
                needed += more.tasks
            except RunFailed as failed:
                verdicts[candidate.id] = FailedRun.of(failed.failure, failed.detail)
        for candidate in alive:
            if candidate.id in verdicts:
                return _judged(candidate, Gate.SCREEN, verdicts[candidate.id])
        if needed:
            raise Needed(needed)
        return None

    def seeds(self, generation: Generation) -> Record | None:
        """G4: is the configuration better over fresh training seeds?"""
        winners = [c for c in generation.candidates.values() if c.passed(Gate.SCREEN)]
        winners.sort(key=lambda c: -c.screen.e_value)
        for place, candidate in enumerate(winners):
            if Gate.SEEDS in candidate.judged:
                continue
            if place >= self.gates.finalists:
                reasons = [f"{self.gates.finalists} others of its generation had more evidence"]
                verdict: Verdict = NotTried(False, reasons, Outcome.NOT_TRIED)
                return _judged(candidate, Gate.SEEDS, verdict)
            try:
                verdict = self._claimed(generation, candidate)
            except RunFailed as failed:
                verdict = FailedRun.of(failed.failure, failed.detail)
            return _judged(candidate, Gate.SEEDS, verdict)
        return None

    def mechanism(self, generation: Generation) -> Record | None:
        """G5: did what the hypothesis predicts come?"""
        for candidate in generation.candidates.values():
            if Gate.MECHANISM not in candidate.judged:
                verdict = self._observed(generation, candidate)
                return _judged(candidate, Gate.MECHANISM, verdict)
        return None

    def _rung_decision(self, gate: str, share: float) -> Decide:
        return lambda generation: self._rung(generation, gate, share)

    def _rung(self, generation: Generation, gate: str, share: float) -> Record | None:
        """A rung of G2: the better of the field go on."""
        field = self._field(generation, gate)
        waiting = [candidate for candidate in field if gate not in candidate.judged]
        if not waiting or len(field) <= self.gates.finalists:
            return None
        first, count = self.measured.units(generation, RUNG_UNITS), self.gates.rung_units
        names = [generation.parent, *(candidate.id for candidate in field)]
        run = self.measured.screen_run
        tasks = {name: JudgeTask(run(generation, name, share), first, count) for name in names}
        self.measured.need_judged(tasks.values())
        means: dict[str, float] = {}
        failures: dict[str, Verdict] = {}
        for name, task in tasks.items():
            try:
                means[name] = self.measured.mean(self.measured.rows(task))
            except RunFailed as failed:
                failures[name] = FailedRun.of(failed.failure, failed.detail)
        control = means.pop(generation.parent, None)
        ranked = gates.rung(means, control, self.gates.primary.sign, self.gates.eta)
        candidate = waiting[0]
        return _judged(candidate, gate, {**ranked, **failures}[candidate.id])

    def _screened(self, generation: Generation, candidate: Candidate) -> ScreenVerdict | FailedRun:
        """G3 of one candidate, batch by batch until it has an outcome."""
        pair = [
            self.measured.screen_run(generation, name) for name in (candidate.id, generation.parent)
        ]
        first, done = self.measured.units(generation, SCREEN_UNITS), 0
        rows: Rows = {}
        parent: Rows = {}
        while True:
            count = min(self.gates.batch, self.gates.cap - done)
            tasks = [JudgeTask(task, first + done, count) for task in pair]
            self.measured.need_judged(tasks)
            rows = {**rows, **self.measured.rows(tasks[0])}
            parent = {**parent, **self.measured.rows(tasks[1])}
            done += count
            try:
                verdict = gates.screen(rows, parent, self.gates)
            except ValueError as error:
                return FailedRun.of(Failure.UNUSABLE, str(error))
            if verdict.outcome:
                return verdict

    def _claimed(self, generation: Generation, candidate: Candidate) -> SeedsVerdict:
        """G4 of one candidate, seed by seed until it has an outcome."""
        alpha, needed = self.gates.claim(generation.number)
        runs: list[Rows] = []
        parents: list[Rows] = []
        together = max(1, self.config.executor.jobs // 2)
        while True:
            # Several seeds are trained at a time if there are processes for them. The verdict looks
            # at them one by one, so that it does not depend on the number of processes.
            ahead = range(len(runs) + 1, min(len(runs) + together, needed) + 1)
            pairs = [self._pair(generation, candidate, index) for index in ahead]
            self.measured.need_judged(task for pair in pairs for task in pair)
            for mine, other in pairs:
                runs.append(self.measured.rows(mine))
                parents.append(self.measured.rows(other))
                verdict = gates.seeds(runs, parents, needed, alpha, self.gates)
                if verdict.outcome:
                    return verdict

    def _pair(self, generation: Generation, candidate: Candidate, index: int) -> list[JudgeTask]:
        """Judgements of the candidate and of its parent, both trained with the same seed."""
        first, count = self.measured.units(generation, SEED_UNITS), self.gates.seed_units
        seed = training_seed(self.config, generation.number, index)
        return [
            JudgeTask(self.measured.train(name, seed), first, count)
            for name in (candidate.id, generation.parent)
        ]

    def _observed(self, generation: Generation, candidate: Candidate) -> MechanismVerdict:
        """G5 by training seeds if there are several, else by the units of the screen."""
        name, sign = candidate.proposal.observable, candidate.proposal.sign
        rows, mean = self.measured.rows, self.measured.mean
        if candidate.seeds is not None and candidate.seeds.seeds >= 2:
            indices = range(1, candidate.seeds.seeds + 1)
            pairs = [self._pair(generation, candidate, index) for index in indices]
            values, parent = ([mean(rows(pair[i]), name) for pair in pairs] for i in (0, 1))
            return gates.mechanism(name, sign, values, parent, "training seeds")
        if candidate.screen is None:
            return gates.mechanism(name, sign, [], [], "tracks")
        columns: list[list[float | None]] = []
        first = self.measured.units(generation, SCREEN_UNITS)
        for who in (candidate.id, generation.parent):
            trained, column = self.measured.screen_run(generation, who), []
            for start in range(0, candidate.screen.units, self.gates.batch):
                count = min(self.gates.batch, self.gates.cap - start)
                judged = rows(JudgeTask(trained, first + start, count))
                column += [row.get(name) for row in judged.values()]
            columns.append(column)
        return gates.mechanism(name, sign, *columns, "units of one training seed")

    def _alive(self, generation: Generation, gate: str) -> list[Candidate]:
        """Candidates that no gate has stopped, and that `gate` has not judged."""
        return [c for c in generation.candidates.values() if not c.out and gate not in c.judged]

    def _field(self, generation: Generation, gate: str) -> list[Candidate]:
        """Candidates of a rung, judged there or not: those that no earlier gate stopped."""
        aside = (gate, Gate.MECHANISM)
        return [
            candidate
            for candidate in generation.candidates.values()
            if all(v.passed for name, v in candidate.judged.items() if name not in aside)
        ]


def _judged(candidate: Candidate, gate: str, verdict: Verdict) -> Record:
    data = {"candidate": candidate.id, "gate": gate, **verdict.plain()}
    return Record(RowKind.JUDGED, data)
