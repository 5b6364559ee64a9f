"""Runs a campaign: takes the next step and writes its result down, until nothing is left to do.

<root>/<name>/ledger.jsonl   everything that happened (`ledger.py`)
              artifacts/     what tasks measured, each file named by its hash
              runs/  logs/   files of the processes; verifying a campaign does not need them
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any

from autoresearch.config import CampaignConfig
from autoresearch.execute.artifacts import ArtifactStore
from autoresearch.execute.harness import Harness
from autoresearch.execute.processes import Executor, LocalExecutor
from autoresearch.loop import lines
from autoresearch.loop.asking import ask
from autoresearch.loop.attempts import Attempts
from autoresearch.loop.ledger import LEDGER, Ledger, Row, RowKind
from autoresearch.loop.plan import final_step, next_step
from autoresearch.loop.recorded import differing
from autoresearch.loop.state import State
from autoresearch.loop.steps import Ask, Perform, Record, Step, Stop
from autoresearch.propose.brief import Proposer
from autoresearch.propose.proposers import make_proposer
from common import cli
from common.errors import ConfigError, UserError
from common.files import to_plain
from common.runs import code_state


class Stage(StrEnum):
    """How far `Campaign.run` goes.

    PROPOSE: until the generation has its proposals. JUDGE: until each of them is judged. PROMOTE:
    until the generation is closed. ALL: until the search has ended. FINAL: after that, the winner
    on the sealed units.
    """

    PROPOSE = "propose"
    JUDGE = "judge"
    PROMOTE = "promote"
    ALL = "all"
    FINAL = "final"


class Campaign:
    """A campaign whose ledger is held by this process; use `Campaign.opened`.

    Args:
        config: what it does.
        directory: where.
        ledger: open for writing.
        say: prints a line.
        executor: what runs tasks.
        watch: is given the state after every row, and while runs are waited for.
    """

    def __init__(
        self,
        config: CampaignConfig,
        directory: Path,
        ledger: Ledger,
        say: Callable[[str], None],
        executor: Executor,
        watch: Callable[[State], None],
    ) -> None:
        self.config, self.directory, self.ledger = config, directory, ledger
        self.say, self.watch = say, watch
        self.state = State.of(ledger.rows)
        self.harness, store = Harness(config, directory), ArtifactStore(directory / "artifacts")
        self.load = lru_cache(maxsize=4096)(store.load)
        self.attempts = Attempts(
            config, self.state, self._write, self.harness, store, executor, say, watch
        )
        self._proposer: Proposer | None = None
        self._over = False

    @classmethod
    @contextmanager
    def opened(
        cls,
        config: CampaignConfig,
        say: Callable[[str], None],
        watch: Callable[[State], None] = lambda state: None,
    ) -> Iterator[Campaign]:
        """Begin a campaign, or go on with the one in its directory.

        Raises `UserError` if another process runs it, it was begun with other settings or other
        code, or its ledger is damaged.
        """
        directory = Path(config.root) / config.name
        with Ledger.writing(directory / LEDGER) as ledger:
            executor = _executor(config)
            try:
                campaign = cls(config, directory, ledger, say, executor, watch)
                campaign._begin()
                yield campaign
            finally:
                executor.stop()

    def run(self, stage: Stage = Stage.ALL) -> str:
        """Take steps until the campaign, or the stage, ends; returns why it stopped.

        Raises `UserError` for the stage FINAL of a campaign whose search has not ended.
        """
        final = stage == Stage.FINAL
        if self._over and not final:
            return str(self.state.ended)
        if self._over:
            step = final_step(self.config, self.state, self.load)
            if isinstance(step, Stop):  # to look at it again is no event
                return step.reason
            self._take_up()
        while True:
            ended = self.state.ended is not None
            step = (final_step if final and ended else next_step)(
                self.config, self.state, self.load
            )
            if final and not ended:
                self._end_search(step)
                continue
            if self._beyond(stage, step):
                return f"{stage} is done"
            match step:
                case Stop(reason):
                    return reason
                case Record(kind, data):
                    self._write(kind, data)
                    if line := lines.of(kind, data, self.state, self.config):
                        self.say(line)
                    if kind is RowKind.CLOSED and stage == Stage.PROMOTE:
                        return f"{stage} is done"
                case Ask():
                    self._ask()
                case Perform(tasks):
                    if reason := self.attempts.perform(tasks, limited=not ended):
                        self._write(RowKind.ENDED, {"reason": reason})

    def _end_search(self, step: Step) -> None:
        """Write that the search has ended, if `step` says so or a budget is spent."""
        if isinstance(step, Record) and step.kind is RowKind.ENDED:
            self._write(RowKind.ENDED, step.data)
        elif isinstance(step, Perform) and (reason := self.attempts.over_budget(step.tasks[0], {})):
            self._write(RowKind.ENDED, {"reason": reason})
        else:
            raise UserError(
                f"{self.directory} has not ended, and sealed units are opened once: run it to its "
                "end first"
            )

    def _beyond(self, stage: Stage, step: Step) -> bool:
        """Whether a stage ends before `step`."""
        kind = step.kind if isinstance(step, Record) else None
        if stage == Stage.JUDGE:
            return kind in (RowKind.PROMOTED, RowKind.CLOSED)
        if stage == Stage.PROPOSE:
            generation = self.state.generation
            candidates = generation.candidates if generation and not generation.closed else {}
            tasks = step.tasks if isinstance(step, Perform) else []
            return kind in (RowKind.JUDGED, RowKind.PROMOTED, RowKind.CLOSED) or any(
                task.candidate in candidates for task in tasks
            )
        return False

    def _begin(self) -> None:
        settings, code = to_plain(self.config), code_state()["sha256"]
        if not self.ledger.rows:
            self._proposer = make_proposer(self.config)  # if that fails, nothing begins
            command = cli.command("-m autoresearch")
            data = {"config": settings, "code": code, "command": command}
            self._write(RowKind.CAMPAIGN, data)
            return
        began = self.state.campaign
        changed = differing(began["config"], settings)
        if changed:
            raise ConfigError(
                f"{self.directory} was begun with another {', '.join(changed)}; give the campaign "
                "another name (name=...), or go on with its own settings (resume)"
            )
        if began["code"] != code:
            raise UserError(
                f"{self.directory} was begun with other code ({began['code'][:12]}, now "
                f"{code[:12]}): its runs would not compare; check that code out again, or begin "
                "anew under another name (name=...)"
            )
        begun = (RowKind.CAMPAIGN, RowKind.RESUMED)
        last = next(row for row in reversed(self.ledger.rows) if row.kind in begun)
        # To look again at a campaign that has ended is no event, unless it may spend more now.
        budgets = last.data["config"]["budgets"]
        self._over = self.state.ended is not None and budgets == settings["budgets"]
        if not self._over:
            self._take_up()

    def _take_up(self) -> None:
        """Go on with a campaign that an earlier process began."""
        self._over = False
        self._write(RowKind.RESUMED, {"config": to_plain(self.config)})
        self.attempts.close_open()

    def _ask(self) -> None:
        """Get one proposal and write down what became of it."""
        spent, limit = self.state.tokens, self.config.budgets.tokens
        if limit is not None and spent >= limit:
            self._write(RowKind.ENDED, {"reason": f"budget: {limit:,} tokens are spent"})
            return
        if self._proposer is None:
            self._proposer = make_proposer(self.config)
        answer = ask(self._proposer, self.config, self.state, self.load)
        self._write(answer.kind, answer.data)
        self.say(answer.line)

    def _write(self, kind: RowKind, data: Mapping[str, Any]) -> Row:
        row = self.ledger.append(kind, data)
        self.state.apply(row)
        self.watch(self.state)
        return row


def _executor(config: CampaignConfig) -> Executor:
    if config.executor.kind == "ray":
        from autoresearch.execute.cluster import RayExecutor  # an extra, and slow to import

        return RayExecutor(config.executor, config.budgets.grace)
    return LocalExecutor(config.budgets.grace)
