"""What a campaign does next: a pure function of its ledger and artifacts.

The same ledger leads to the same next step, whatever was killed before and however runs were spread
over processes. `verify` makes every decision again by the same functions.
"""

from __future__ import annotations

from collections.abc import Callable

from autoresearch.config import CampaignConfig
from autoresearch.judge import gates
from autoresearch.loop.gatekeeper import Gatekeeper
from autoresearch.loop.ledger import RowKind
from autoresearch.loop.measured import SCREEN_UNITS, Measurements, Needed, RunFailed, final_seed
from autoresearch.loop.state import Generation, State
from autoresearch.loop.steps import Ask, Perform, Record, Step, Stop
from autoresearch.types.artifact import Artifact
from autoresearch.types.run import BASE
from autoresearch.types.task import JudgeTask
from autoresearch.types.verdict import FailedRun, Gate, Verdict
from common.errors import UserError


def next_step(config: CampaignConfig, state: State, load: Callable[[str], Artifact]) -> Step:
    """What comes next.

    Args:
        config: of the campaign.
        state: after the last row of its ledger.
        load: the artifact of a hash.

    Raises:
        UserError: a measurement that contradicts what the configuration says of it.
    """
    if state.ended is not None:
        return Stop(state.ended)
    return _decided(_Planner(config, state, load).step)


def final_step(config: CampaignConfig, state: State, load: Callable[[str], Artifact]) -> Step:
    """What comes next for a campaign whose search has ended: its winner against its base, on fresh
    seeds and sealed units, once. Arguments and errors are those of `next_step`."""
    return _decided(_Planner(config, state, load).final)


def _decided(decide: Callable[[], Step]) -> Step:
    try:
        return decide()
    except Needed as needed:
        return Perform(needed.tasks)
    except ValueError as error:
        raise UserError(f"gates: {error}") from None


class _Planner:
    def __init__(
        self, config: CampaignConfig, state: State, load: Callable[[str], Artifact]
    ) -> None:
        self.config, self.state, self.gates = config, state, config.gates
        self.measured = Measurements(config, state, load)

    def step(self) -> Step:
        """The next step of the search."""
        generation = self.state.generation
        if generation is None or generation.closed:
            return self._open()
        try:
            level = self._parent_level(generation)
        except RunFailed as failed:
            return _end(f"{failed.task.candidate} could not run: {failed}")
        if generation.number == 1 and (reason := self._no_headroom(level)):
            return _end(reason)
        if self._proposing(generation):
            return Ask()
        for gate in Gatekeeper(self.measured).in_order():
            if record := gate(generation):
                return record
        return self._close(generation)

    def final(self) -> Step:
        """The last claim: the winner's gain over the base holds up, or it does not."""
        state, final = self.state, self.config.final
        if state.final is not None:
            return Stop("the gain held up" if state.final.passed else "the gain did not hold up")
        winner = state.parent
        if winner == BASE:
            return Stop("nothing was promoted, so there is nothing to open sealed units for")
        if state.opened is None:
            data = {"candidate": winner, "first": final.first, "units": final.units}
            return Record(RowKind.OPENED, data | {"seeds": final.seeds})
        seeds = [final_seed(self.config, index) for index in range(final.seeds)]
        winners, bases = (
            [
                JudgeTask(self.measured.train(name, seed), final.first, final.units, sealed=True)
                for seed in seeds
            ]
            for name in (winner, BASE)
        )
        self.measured.need_judged([*winners, *bases])
        try:
            runs, parents = ([self.measured.rows(task) for task in x] for x in (winners, bases))
            verdict: Verdict = gates.seeds(runs, parents, len(seeds), final.level, self.gates)
        except RunFailed as failed:
            verdict = FailedRun.of(failed.failure, failed.detail)
        return Record(RowKind.FINAL, {"candidate": winner, **verdict.plain()})

    def _open(self) -> Record:
        """The next generation, or the end of the search."""
        number, last = len(self.state.generations) + 1, self.state.generation
        if self.state.opened:
            return _end("its sealed units have been opened")
        if number > self.config.budgets.generations:
            return _end("all generations are done")
        if last is not None and not last.candidates:
            return _end("no proposal came that may be tried")
        alpha, seeds = self.gates.claim(number)
        data = {"number": number, "parent": self.state.parent, "alpha": alpha, "seeds": seeds}
        return Record(RowKind.GENERATION, data)

    def _proposing(self, generation: Generation) -> bool:
        """Whether the generation still takes proposals."""
        if any(candidate.judged for candidate in generation.candidates.values()):
            return False
        enough = len(generation.candidates) >= self.config.proposer.candidates
        if enough or generation.exhausted:
            return False
        return generation.refused_in_a_row < self.config.proposer.tries

    def _close(self, generation: Generation) -> Record:
        """The promotion of the best winner, and after it the end of the generation."""
        winners = [c for c in generation.candidates.values() if c.passed(Gate.SEEDS)]
        best = max(winners, key=lambda candidate: candidate.seeds.gain.mean, default=None)
        if best is not None and not any(candidate.promoted for candidate in winners):
            data = {"candidate": best.id, "overrides": best.overrides}
            return Record(RowKind.PROMOTED, data)
        return Record(RowKind.CLOSED, {"number": generation.number})

    def _parent_level(self, generation: Generation) -> float:
        """The parent's mean of the primary on the first batch of the screen."""
        task = JudgeTask(
            self.measured.screen_run(generation, generation.parent),
            self.measured.units(generation, SCREEN_UNITS),
            min(self.gates.batch, self.gates.cap),
        )
        self.measured.need_judged([task])
        return self.measured.mean(self.measured.rows(task))

    def _no_headroom(self, level: float) -> str | None:
        """Why the base is too good to be improved, or None if it is not."""
        best, sign = self.gates.best, self.gates.primary.sign
        if best is None or sign * (best - level) >= self.gates.headroom:
            return None
        return (
            f"no headroom: the base's {self.gates.primary.name} is {level:.4g}, and {best:g} is "
            "the best there is; choose another primary, such as native_return or lap_time"
        )


def _end(reason: str) -> Record:
    return Record(RowKind.ENDED, {"reason": reason})
