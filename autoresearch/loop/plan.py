"""What a campaign does next: a pure function of its ledger and artifacts.

Whoever is killed, wherever, and however runs were spread over processes: the same ledger leads to
the same next step, and `verify` takes every decision again by the same function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autoresearch.config import CampaignConfig
from autoresearch.execute.harness import Artifact, Task, judge_task, key_of, train_task
from autoresearch.judge import gates
from autoresearch.loop.state import BASE, Candidate, Generation, State
from common.errors import UserError
from common.seeding import derive

UNITS_PER_GENERATION = 10_000
SCREEN_UNITS, SEED_UNITS, RUNG_UNITS = 0, 5_000, 9_000
"""Where the units of a generation's screen, of its seeds and of its rungs begin: none is used
twice, so that nothing that was chosen on some units is proved on them."""


@dataclass(frozen=True)
class Record:
    """Write this into the ledger."""

    kind: str
    data: dict[str, Any]


@dataclass(frozen=True)
class Perform:
    """Run these tasks; none of them has been finished or has failed for good."""

    tasks: list[Task]


@dataclass(frozen=True)
class Ask:
    """Ask the proposer for one proposal."""


@dataclass(frozen=True)
class Stop:
    """Nothing is left to do."""

    reason: str


Step = Record | Perform | Ask | Stop


class _Wanted(Exception):
    """A decision needs tasks that are not done yet."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        super().__init__()
        self.tasks = list(tasks)


class _Failed(Exception):
    """A task that a decision needs has failed for good."""

    def __init__(self, task: Task, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.task, self.reason, self.detail = task, reason, detail


def training_seed(config: CampaignConfig, generation: int, index: int) -> int:
    """The seed of a training run: index 0 for screens, from 1 on for the seeds of G4."""
    return derive(config.seed, "training", generation, index) % 2**31


def final_seed(config: CampaignConfig, index: int) -> int:
    """The seed of a training run that the sealed units are opened for."""
    return derive(config.seed, "final", index) % 2**31


def next_step(config: CampaignConfig, state: State, load: Callable[[str], Artifact]) -> Step:
    """What comes next.

    Args:
        config: of the campaign.
        state: after the last row of its ledger.
        load: the artifact of a hash.

    Raises:
        UserError: measurements that contradict what the configuration says of them.
    """
    if state.ended is not None:
        return Stop(state.ended)
    return _decided(_Planner(config, state, load).step)


def final_step(config: CampaignConfig, state: State, load: Callable[[str], Artifact]) -> Step:
    """What comes next for a campaign that has ended: its winner against its base, on fresh seeds
    and sealed units, once. Arguments and errors are those of `next_step`."""
    return _decided(_Planner(config, state, load).final)


def _decided(decide: Callable[[], Step]) -> Step:
    try:
        return decide()
    except _Wanted as wanted:
        return Perform(wanted.tasks)
    except ValueError as error:
        raise UserError(f"gates: {error}") from None


class _Planner:
    def __init__(
        self, config: CampaignConfig, state: State, load: Callable[[str], Artifact]
    ) -> None:
        self.config, self.state, self.load = config, state, load
        self.gates = config.gates

    def step(self) -> Step:
        generation = self.state.generation
        if generation is None or generation.closed:
            return self._open()
        try:
            parent = self._parent_level(generation)
        except _Failed as failed:
            return Record(
                "ended", {"reason": f"{failed.task['candidate']} could not run: {failed}"}
            )
        if generation.number == 1 and (reason := self._no_headroom(parent)):
            return Record("ended", {"reason": reason})
        wanted = self.config.proposer.candidates
        if self._proposing(generation, wanted):
            return Ask()
        for gate in (self._smoke, *self._rungs(), self._screen, self._seeds, self._mechanism):
            if record := gate(generation):
                return record
        return self._close(generation)

    def _open(self) -> Step:
        number = len(self.state.generations) + 1
        if self.state.opened:
            return Record("ended", {"reason": "its sealed units have been opened"})
        if number > self.config.budgets.generations:
            return Record("ended", {"reason": "all generations are done"})
        last = self.state.generation
        if last is not None and not last.candidates:
            return Record("ended", {"reason": "no proposal came that may be tried"})
        alpha, seeds = self.gates.claim(number)
        data = {"number": number, "parent": self.state.parent, "alpha": alpha, "seeds": seeds}
        return Record("generation", data)

    def _proposing(self, generation: Generation, wanted: int) -> bool:
        if any(candidate.judged for candidate in generation.candidates.values()):
            return False
        enough = len(generation.candidates) >= wanted
        if enough or generation.exhausted:
            return False
        return generation.refused_in_a_row < self.config.proposer.tries

    def _close(self, generation: Generation) -> Record:
        winners = [c for c in generation.candidates.values() if c.passed("G4")]
        best = max(winners, key=lambda c: c.judged["G4"]["gain"]["mean"], default=None)
        if best is not None and not any(c.promoted for c in winners):
            return Record("promoted", {"candidate": best.id, "overrides": best.overrides})
        return Record("closed", {"number": generation.number})

    def final(self) -> Step:
        """The last claim: the winner's gain over the base holds up, or it does not."""
        state, final = self.state, self.config.final
        if state.final is not None:
            return Stop("the gain held up" if state.final["passed"] else "the gain did not hold up")
        winner = state.parent
        if winner == BASE:
            return Stop("nothing was promoted, so there is nothing to open sealed units for")
        if state.opened is None:
            return Record("opened", {"candidate": winner, "first": final.first,
                                     "units": final.units, "seeds": final.seeds})  # fmt: skip
        seeds = [final_seed(self.config, index) for index in range(final.seeds)]
        columns = [
            [
                judge_task(
                    train_task(name, state.overrides(name), seed, self.config.budget),
                    final.first, final.units, sealed=True,
                )
                for seed in seeds
            ]
            for name in (winner, BASE)
        ]  # fmt: skip
        self._want_judged([task for column in columns for task in column])
        try:
            own, base = ([self._found(task)["rows"] for task in column] for column in columns)
            verdict = gates.configuration(own, base, len(seeds), final.level, self.gates)
        except _Failed as failed:
            verdict = gates.failure(failed.reason, failed.detail)
        return Record("final", {"candidate": winner, **verdict})

    # The gates, each a decision about one candidate, or None if it has none to take.

    def _smoke(self, generation: Generation) -> Record | None:
        alive = self._alive(generation, "G1")
        share = self.gates.smoke or 1.0
        control = self._train(generation, generation.parent, share)
        base = self._train(generation, BASE, share)
        tasks = {c.id: self._train(generation, c.id, share) for c in alive}
        if not tasks:
            return None
        self._want([control, base, *tasks.values()])
        for candidate in alive:
            verdict = self._or_failure(
                lambda task: gates.smoke(
                    self._found(task), self._found(control), self._found(base)["config"],
                    self.state.overrides(task["candidate"]),
                ),
                tasks[candidate.id],
            )  # fmt: skip
            return self._judged(candidate, "G1", verdict)
        return None

    def _rungs(self) -> list[Callable[[Generation], Record | None]]:
        def rung(index: int, share: float) -> Callable[[Generation], Record | None]:
            return lambda generation: self._rung(generation, f"G2.{index}", share)

        return [rung(i, share) for i, share in enumerate(self.gates.halving, 1)]

    def _rung(self, generation: Generation, gate: str, share: float) -> Record | None:
        field = self._field(generation, gate)
        waiting = [c for c in field if gate not in c.judged]
        if not waiting or len(field) <= self.gates.finalists:
            return None
        first = self._units(generation, RUNG_UNITS)
        count = self.gates.rung_units
        names = [generation.parent, *(c.id for c in field)]
        tasks = {n: judge_task(self._train(generation, n, share), first, count) for n in names}
        self._want_judged(tasks.values())
        means, failures = {}, {}
        for name, task in tasks.items():
            try:
                means[name] = self._mean(self._found(task)["rows"])
            except _Failed as failed:
                failures[name] = gates.failure(failed.reason, failed.detail)
        control = means.pop(generation.parent, float("nan"))
        ranked = gates.rung(means, control, self.gates.primary.sign, self.gates.eta)
        candidate = waiting[0]
        return self._judged(candidate, gate, (ranked | failures)[candidate.id])

    def _screen(self, generation: Generation) -> Record | None:
        alive = self._alive(generation, "G3")
        verdicts, wanted = {}, []
        for candidate in alive:
            try:
                verdicts[candidate.id] = self._screened(generation, candidate)
            except _Wanted as more:
                wanted += more.tasks
            except _Failed as failed:
                verdicts[candidate.id] = gates.failure(failed.reason, failed.detail)
        for candidate in alive:
            if candidate.id in verdicts:
                return self._judged(candidate, "G3", verdicts[candidate.id])
        if wanted:
            raise _Wanted(_distinct(wanted))
        return None

    def _screened(self, generation: Generation, candidate: Candidate) -> gates.Verdict:
        trained = [self._train(generation, n, 1.0) for n in (candidate.id, generation.parent)]
        first, own, parent = self._units(generation, SCREEN_UNITS), {}, {}
        done = 0
        while True:
            count = min(self.gates.batch, self.gates.cap - done)
            tasks = [judge_task(task, first + done, count) for task in trained]
            self._want_judged(tasks)
            own |= self._found(tasks[0])["rows"]
            parent |= self._found(tasks[1])["rows"]
            done += count
            try:
                verdict = gates.screen(own, parent, self.gates)
            except ValueError as error:
                return gates.failure("unusable", str(error))
            if verdict["outcome"]:
                return verdict

    def _seeds(self, generation: Generation) -> Record | None:
        winners = [c for c in generation.candidates.values() if c.passed("G3")]
        winners.sort(key=lambda c: -c.judged["G3"]["e_value"])
        for place, candidate in enumerate(winners):
            if "G4" in candidate.judged:
                continue
            if place >= self.gates.finalists:
                reasons = [f"{self.gates.finalists} others of its generation had more evidence"]
                told = {"passed": False, "outcome": "not tried", "reasons": reasons}
                return self._judged(candidate, "G4", told)
            try:
                verdict = self._configured(generation, candidate)
            except _Failed as failed:
                verdict = gates.failure(failed.reason, failed.detail)
            return self._judged(candidate, "G4", verdict)
        return None

    def _configured(self, generation: Generation, candidate: Candidate) -> gates.Verdict:
        alpha, seeds = self.gates.claim(generation.number)
        own: list[gates.Rows] = []
        parent: list[gates.Rows] = []
        together = max(1, self.config.executor.jobs // 2)
        while True:
            # Several seeds at a time where there are processes for them; they are looked at one
            # by one, so that the decision does not depend on how many those are.
            ahead = range(len(own) + 1, min(len(own) + together, seeds) + 1)
            pairs = [self._pair(generation, candidate, index) for index in ahead]
            self._want_judged([task for pair in pairs for task in pair])
            for mine, other in pairs:
                own.append(self._found(mine)["rows"])
                parent.append(self._found(other)["rows"])
                verdict = gates.configuration(own, parent, seeds, alpha, self.gates)
                if verdict["outcome"]:
                    return verdict

    def _pair(self, generation: Generation, candidate: Candidate, index: int) -> list[Task]:
        first, count = self._units(generation, SEED_UNITS), self.gates.seed_units
        seed = training_seed(self.config, generation.number, index)
        names = (candidate.id, generation.parent)
        trained = [train_task(n, self.state.overrides(n), seed, self.config.budget) for n in names]
        return [judge_task(task, first, count) for task in trained]

    def _mechanism(self, generation: Generation) -> Record | None:
        for candidate in generation.candidates.values():
            if "G5" not in candidate.judged:
                return self._judged(candidate, "G5", self._observed(generation, candidate))
        return None

    def _observed(self, generation: Generation, candidate: Candidate) -> gates.Verdict:
        """By training seeds where there are several, else by the units of the screen."""
        name, sign = candidate.proposal["observable"], candidate.proposal["sign"]
        told = candidate.judged.get("G4", {})
        if told.get("seeds", 0) >= 2:
            pairs = [self._pair(generation, candidate, i + 1) for i in range(told["seeds"])]
            own, parent = ([self._mean(self._found(pair[i])["rows"], name) for pair in pairs]
                           for i in (0, 1))  # fmt: skip
            return gates.mechanism(name, sign, own, parent, "training seeds")
        units = candidate.judged.get("G3", {}).get("units", 0)
        if not units:
            return gates.mechanism(name, sign, [], [], "tracks")
        trained = [self._train(generation, n, 1.0) for n in (candidate.id, generation.parent)]
        first, columns = self._units(generation, SCREEN_UNITS), ([], [])
        for start in range(0, units, self.gates.batch):
            count = min(self.gates.batch, self.gates.cap - start)
            for column, task in zip(columns, trained, strict=True):
                rows = self._found(judge_task(task, first + start, count))["rows"]
                column.extend(row.get(name) for row in rows.values())
        return gates.mechanism(name, sign, *columns, "units of one training seed")

    # What the gates look at.

    def _alive(self, generation: Generation, gate: str) -> list[Candidate]:
        return [c for c in generation.candidates.values() if not c.out and gate not in c.judged]

    def _field(self, generation: Generation, gate: str) -> list[Candidate]:
        """Who takes part in a rung: those that no earlier gate stopped."""
        return [
            c
            for c in generation.candidates.values()
            if all(told["passed"] for name, told in c.judged.items() if name not in (gate, "G5"))
        ]

    def _parent_level(self, generation: Generation) -> float:
        """The parent's mean of the primary on the first batch of the screen."""
        task = judge_task(
            self._train(generation, generation.parent, 1.0),
            self._units(generation, SCREEN_UNITS),
            min(self.gates.batch, self.gates.cap),
        )
        self._want_judged([task])
        return self._mean(self._found(task)["rows"])

    def _no_headroom(self, level: float) -> str | None:
        best, sign = self.gates.best, self.gates.primary.sign
        if best is None or sign * (best - level) >= self.gates.headroom:
            return None
        name = self.gates.primary.name
        return (
            f"no headroom: the base's {name} is {level:.4g}, and {best:g} is the best there is; "
            "choose another primary, such as native_return or lap_time"
        )

    def _units(self, generation: Generation, part: int) -> int:
        return self.config.first_unit + UNITS_PER_GENERATION * generation.number + part

    def _train(self, generation: Generation, name: str, share: float) -> Task:
        seed = training_seed(self.config, generation.number, 0)
        budget = max(1, round(self.config.budget * share))
        return train_task(name, self.state.overrides(name), seed, budget)

    def _mean(self, rows: gates.Rows, name: str | None = None) -> float | None:
        values = [row.get(name or self.gates.primary.name) for row in rows.values()]
        known = [value for value in values if value is not None]
        return float(np.mean(known)) if known else None

    def _judged(self, candidate: Candidate, gate: str, verdict: Mapping[str, Any]) -> Record:
        return Record("judged", {"candidate": candidate.id, "gate": gate, **verdict})

    def _or_failure(self, decide: Callable[[Task], gates.Verdict], task: Task) -> gates.Verdict:
        try:
            return decide(task)
        except _Failed as failed:
            return gates.failure(failed.reason, failed.detail)

    def _found(self, task: Task) -> Artifact:
        """What a task found; `_Failed` if it, or the run that it needs, failed."""
        run = self.state.runs.get(key_of(task))
        if run is not None and run.finished:
            return self.load(run.artifact)
        for needed in self._chain(task):
            run = self.state.runs.get(key_of(needed))
            if run is not None and run.failed(self.config.executor.attempts):
                raise _Failed(needed, run.last.reason, run.last.detail)
        raise _Wanted([task])

    def _want(self, tasks: Sequence[Task]) -> None:
        """Raise `_Wanted` unless each of the tasks is done, or cannot be."""
        missing = [task for task in _distinct(tasks) if self._pending(task)]
        if missing:
            raise _Wanted(missing)

    def _want_judged(self, tasks: Any) -> None:
        """The same for judgements, whose training runs come first."""
        tasks = _distinct(tasks)
        ready = []
        for task in tasks:
            trained = self._trained_task(task)
            if self._pending(trained):
                ready.append(trained)
            elif self.state.runs[task["of"]].finished and self._pending(task):
                ready.append(task)
        if ready:
            raise _Wanted(_distinct(ready))

    def _pending(self, task: Task) -> bool:
        run = self.state.runs.get(key_of(task))
        return run is None or not (run.finished or run.failed(self.config.executor.attempts))

    def _chain(self, task: Task) -> list[Task]:
        return [self._trained_task(task), task] if task["kind"] == "judge" else [task]

    def _trained_task(self, task: Task) -> Task:
        """The training task of a judgement, from its key."""
        run = self.state.runs.get(task["of"])
        if run is not None:
            return run.task
        _, _, seed, budget = task["of"].split(":")
        name = task["candidate"]
        return train_task(name, self.state.overrides(name), int(seed), int(budget))


def _distinct(tasks: Any) -> list[Task]:
    return list({key_of(task): task for task in tasks}.values())
