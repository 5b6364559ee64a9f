"""Runs a campaign: takes the next step, writes down what came of it, until nothing is left to do.

<root>/<name>/ledger.jsonl   all that happened (`ledger.py`)
              artifacts/     what tasks found, by hash
              runs/  logs/   what their processes left; not needed to verify anything
"""

from __future__ import annotations

import dataclasses
import secrets
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from autoresearch.config import CampaignConfig
from autoresearch.execute.harness import Artifact, Harness, Unusable, key_of, train_task
from autoresearch.execute.processes import Ended, Executor, LocalExecutor, end_attempt
from autoresearch.loop.ledger import Ledger, Row
from autoresearch.loop.plan import (
    Ask,
    Perform,
    Record,
    Step,
    Stop,
    final_step,
    next_step,
    training_seed,
)
from autoresearch.loop.state import BASE, INTERRUPTED, LOST, RunState, State
from autoresearch.propose.proposal import combined, digest, objections
from autoresearch.propose.proposers import Brief, Exhausted, Proposer, Trial, make_proposer
from common import cli, schema
from common.errors import EXIT_USER_ERROR, ConfigError, UserError
from common.files import to_plain
from common.runs import code_state

RULERS = {"train": "code", "judge": "evaluator"}
"""Of an artifact of each kind, the hash that all of a campaign's have to share."""

Stage = Literal["propose", "judge", "promote", "all", "final"]

LEDGER = "ledger.jsonl"
FROM_OUTSIDE = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
"""Signals that say nothing about the command that died of them."""
CHANGEABLE = ("budgets", "executor", "root")
"""Settings that a campaign may be taken up again with: they decide when, not what."""


class Campaign:
    """A campaign whose ledger is held by this process; use `Campaign.opened`.

    Args:
        config: what it does.
        directory: where.
        ledger: open for writing.
        say: prints a line.
        executor: what runs tasks.
        watch: is given the state after every row.
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
        self.harness = Harness(config, directory)
        self.load = lru_cache(maxsize=4096)(self.harness.load)
        self.executor = executor
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
        """Begin a campaign, or take up the one in its directory.

        Raises `UserError` where another process runs it, it was begun with other settings or
        other code, or its ledger is damaged.
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

    def run(self, stage: Stage = "all") -> str:
        """Take steps until the campaign ends, or a stage of a generation; returns why it stopped.

        Stages: propose, until the generation has its proposals; judge, until each of them is
        judged; promote, until the generation is closed; all; final, once it has ended: its winner
        on its sealed units. Raises `UserError` for a final of one that has not.
        """
        if self._over and stage != "final":
            return str(self.state.ended)
        if self._over:
            step = final_step(self.config, self.state, self.load)
            if isinstance(step, Stop):  # looking again is nothing that happened
                return step.reason
            self._take_up()
        while True:
            over = self.state.ended is not None
            follows = final_step if stage == "final" and over else next_step
            step = follows(self.config, self.state, self.load)
            if stage == "final" and not over:
                self._end_search(step)
                continue
            if self._beyond(stage, step):
                return f"{stage} is done"
            match step:
                case Stop(reason):
                    return reason
                case Record(kind, data):
                    self._write(kind, data)
                    self._tell(kind, data)
                    if kind == "closed" and stage == "promote":
                        return f"{stage} is done"
                case Ask():
                    self._ask()
                case Perform(tasks):
                    if reason := self.perform(tasks, limited=not over):
                        self._write("ended", {"reason": reason})

    def _end_search(self, step: Step) -> None:
        """Write that the search has ended, where `step` says so or the budget does."""
        if isinstance(step, Record) and step.kind == "ended":
            self._write("ended", step.data)
        elif isinstance(step, Perform) and (reason := self._over_budget(step.tasks[0], {})):
            self._write("ended", {"reason": reason})
        else:
            raise UserError(
                f"{self.directory} has not ended, and sealed units are opened once: run it to its "
                "end first"
            )

    def _beyond(self, stage: Stage, step: Step) -> bool:
        """Whether a stage ends before `step`."""
        kind = step.kind if isinstance(step, Record) else ""
        if stage == "judge":
            return kind in ("promoted", "closed")
        if stage == "propose":
            generation = self.state.generation
            own = generation.candidates if generation and not generation.closed else {}
            tasks = step.tasks if isinstance(step, Perform) else []
            return kind in ("judged", "promoted", "closed") or any(
                task["candidate"] in own for task in tasks
            )
        return False

    def _begin(self) -> None:
        settings, code = to_plain(self.config), code_state()["sha256"]
        if not self.ledger.rows:
            self._proposer = make_proposer(self.config)  # or nothing begins
            command = cli.command("-m autoresearch")
            self._write("campaign", {"config": settings, "code": code, "command": command})
            return
        began = self.state.campaign
        foreign = differing(began["config"], settings)
        if foreign:
            raise ConfigError(
                f"{self.directory} was begun with another {', '.join(foreign)}; give the campaign "
                "another name, or take it up with its own settings"
            )
        if began["code"] != code:
            raise UserError(
                f"{self.directory} was begun with other code ({began['code'][:12]}, now "
                f"{code[:12]}): its runs would not compare; check that code out again, or begin "
                "anew under another name"
            )
        last = next(r for r in reversed(self.ledger.rows) if r.kind in ("campaign", "resumed"))
        # Looking again at what has ended is no event, unless it is given more to spend.
        budgets = last.data["config"]["budgets"]
        self._over = self.state.ended is not None and budgets == settings["budgets"]
        if not self._over:
            self._take_up()

    def _take_up(self) -> None:
        """Settle attempts that were open when the process before this one ended."""
        self._over = False
        self._write("resumed", {"config": to_plain(self.config)})
        for run in [run for run in self.state.runs.values() if run.open]:
            end_attempt(run.last.token, self.config.budgets.grace)
            try:
                artifact = self.harness.collect(run)
            except Unusable:
                told = "its process ended with the campaign's"
                self._failed(run, INTERRUPTED, told, self.harness.seconds(run))
            else:
                self._finished(run, artifact, self.harness.seconds(run))

    def perform(self, tasks: list[dict[str, Any]], limited: bool = True) -> str | None:
        """Run tasks, `jobs` at a time; returns why the campaign has to end, if it is `limited` by
        its budgets and has to."""
        waiting, running = list(tasks), {}
        while waiting or running:
            while waiting and len(running) < self.config.executor.jobs:
                task = waiting.pop(0)
                if limited and (reason := self._over_budget(task, running)):
                    waiting.clear()
                    if not running:
                        return reason
                    break
                run = self._claim(task)
                pid = self.executor.start(self.harness.job(run, self.state))
                self._write("running", {"run": run.id, "attempt": run.last.number, "pid": pid})
                running[run.last.token] = run
            for ended in self.executor.wait():
                self._ended(running.pop(ended.token), ended)
        return None

    def _over_budget(self, task: Mapping[str, Any], running: Mapping[str, RunState]) -> str | None:
        budgets = self.config.budgets
        if budgets.seconds is not None and self.state.seconds >= budgets.seconds:
            return f"budget: {budgets.seconds:,g} seconds of processes are spent"
        if budgets.ticks is not None and task["kind"] == "train":
            open_runs = sum(run.task.get("budget", 0) for run in running.values())
            if self.state.ticks + open_runs + task["budget"] > budgets.ticks:
                return f"budget: the next run would exceed {budgets.ticks:,} ticks"
        return None

    def _claim(self, task: dict[str, Any]) -> RunState:
        key = key_of(task)
        known = self.state.runs.get(key)
        name = known.id if known else f"run_{len(self.state.runs) + 1:03d}"
        attempt = len(known.attempts) + 1 if known else 1
        data = {"run": name, "key": key, "attempt": attempt, "token": secrets.token_hex(8)}
        self._write("claimed", data | {"task": task})
        return self.state.runs[key]

    def _ended(self, run: RunState, ended: Ended) -> None:
        if ended.lost:
            self._failed(run, LOST, ended.lost, ended.seconds)
        elif ended.timed_out:
            told = f"it took longer than {self.config.budgets.timeout:g} s"
            self._failed(run, "timeout", told, ended.seconds)
        elif ended.code == EXIT_USER_ERROR:
            self._failed(run, "refused", self.harness.complaint(run), ended.seconds)
        elif -ended.code in FROM_OUTSIDE:
            self._failed(run, LOST, f"signal {-ended.code} from outside", ended.seconds)
        elif ended.code:
            self._failed(run, "crash", self.harness.complaint(run), ended.seconds)
        else:
            try:
                artifact = self.harness.collect(run)
            except Unusable as error:
                self._failed(run, "unusable", str(error)[:500], ended.seconds)
            else:
                self._finished(run, artifact, ended.seconds)

    def _finished(self, run: RunState, artifact: Artifact, seconds: float) -> None:
        self._check_ruler(run, artifact)
        data = {"run": run.id, "attempt": run.last.number, "seconds": seconds}
        data["ticks"] = self._newly_spent(run, artifact.get("ticks", 0))
        self._write("finished", data | {"artifact": self.harness.keep(artifact)})

    def _failed(self, run: RunState, reason: str, detail: str, seconds: float) -> None:
        if reason in (LOST, INTERRUPTED) and self.executor.forgets:
            ticks = run.task.get("budget", 0)  # nobody knows how far it came: it counts in full
        else:
            ticks = self._newly_spent(run, self.harness.ticks(run))
        data = {"run": run.id, "attempt": run.last.number, "reason": reason, "detail": detail}
        self._write("failed", data | {"seconds": seconds, "ticks": ticks})
        self.say(f"{run.id}: {reason}: {detail}")

    def _newly_spent(self, run: RunState, total: int) -> int:
        """What the last attempt added to the `total` ticks in its run directory."""
        gone = (LOST, INTERRUPTED) if self.executor.forgets else ()
        kept = [attempt for attempt in run.attempts if attempt.reason not in gone]
        return max(total - sum(attempt.ticks for attempt in kept), 0)

    def _check_ruler(self, run: RunState, artifact: Artifact) -> None:
        """Stop a campaign whose runs are no longer made or measured by the same code."""
        kind = artifact["kind"]
        ruler = RULERS[kind]
        hashes = {
            self.load(other.artifact)[ruler]
            for other in self.state.runs.values()
            if other.finished and other.task["kind"] == kind
        }
        if hashes - {artifact[ruler]}:
            told = {
                "train": "trained by other code than the runs before it: they would not compare; "
                "restore the code and resume",
                "judge": "judged by another evaluator than the runs before it: numbers of two "
                "rulers do not compare; restore the evaluator and resume",
            }
            raise UserError(f"{run.id} was {told[kind]}")

    def _ask(self) -> None:
        """Get one proposal and let G0 decide on it."""
        generation, state = self.state.generation, self.state
        brief = self.brief()
        spent, limit = state.tokens, self.config.budgets.tokens
        if limit is not None and spent >= limit:
            self._write("ended", {"reason": f"budget: {limit:,} tokens are spent"})
            return
        if self._proposer is None:
            self._proposer = make_proposer(self.config)
        try:
            proposal = self._proposer.propose(brief)
        except ConfigError:
            raise
        except UserError as error:
            tokens, evidence = getattr(error, "tokens", 0), getattr(error, "evidence", {})
            data = {"proposal": None, "reasons": [str(error)], "tokens": tokens}
            data["exhausted"] = isinstance(error, Exhausted)
            self._write("refused", data | {"evidence": evidence})
            self.say(f"no proposal: {error}")
            return
        reasons = objections(proposal, self.config, brief.parent, brief.base, state.tried)
        plain = dataclasses.asdict(proposal)
        if reasons:
            tokens = proposal.cost.get("tokens", 0)
            self._write("refused", {"proposal": plain, "reasons": reasons, "tokens": tokens})
            self.say(f"refused: {'; '.join(reasons)}")
            return
        overrides = combined(brief.parent, proposal.change, brief.base)
        name = f"g{generation.number:03d}_c{len(generation.candidates) + 1:02d}"
        data = {"candidate": name, "proposal": plain, "overrides": overrides}
        self._write("proposed", data | {"digest": digest(overrides)})
        self.say(f"{name}: {proposal.change} ({proposal.hypothesis})")

    def brief(self) -> Brief:
        """What a proposer may know now."""
        generation, state = self.state.generation, self.state
        own = training_seed(self.config, generation.number, 0)
        parent = self._trained(generation.parent, own)
        base = self._trained(BASE, training_seed(self.config, 1, 0))
        measures = dict(parent["measures"])
        for name, value in self._judged_means(generation.parent, own).items():
            measures[f"judged/{name}"] = value
        asked = [len(g.candidates) + len(g.refused) for g in state.generations]
        history = tuple(
            Trial(
                candidate.id,
                candidate.overrides,
                candidate.proposal["change"],
                _gain(candidate.judged),
                candidate.verdict,
                candidate.proposal["hypothesis"],
                candidate.judged.get("G5", {}).get("verdict", ""),
            )
            for candidate in state.candidates.values()
        )
        return Brief(
            generation.number, asked[-1], sum(asked), base["config"],
            state.overrides(generation.parent), measures, history,
        )  # fmt: skip

    def _trained(self, name: str, seed: int) -> Artifact:
        return self.load(self.state.runs[self._key(name, seed)].artifact)

    def _key(self, name: str, seed: int) -> str:
        """Of a run on the whole budget."""
        return key_of(train_task(name, self.state.overrides(name), seed, self.config.budget))

    def _judged_means(self, name: str, seed: int) -> dict[str, float]:
        trained = self._key(name, seed)
        runs = self.state.runs.values()
        run = next(one for one in runs if one.finished and one.task.get("of") == trained)
        means = {}
        rows = list(self.load(run.artifact)["rows"].values())
        for measure in rows[0]:
            values = [row[measure] for row in rows if row[measure] is not None]
            if values:
                means[measure] = float(np.mean(values))
        return means

    def _write(self, kind: str, data: Mapping[str, Any]) -> Row:
        row = self.ledger.append(kind, data)
        self.state.apply(row)
        self.watch(self.state)
        return row

    def _tell(self, kind: str, data: Mapping[str, Any]) -> None:
        if kind == "generation":
            minutes = self._minutes_per_run()
            cost = f", {2 * data['seeds']} runs" + (f" of {minutes:.1f} minutes" if minutes else "")
            self.say(
                f"generation {data['number']}: parent {data['parent']}; a promotion costs "
                f"{data['seeds']} training seeds (level {data['alpha']:.3g}){cost}"
            )
        elif kind == "judged":
            outcome = data.get("verdict") or ("passed" if data["passed"] else "out")
            told = f"; {'; '.join(data['reasons'])}" if data["reasons"] else ""
            self.say(f"{data['candidate']} {data['gate']}: {outcome}{told}")
        elif kind == "promoted":
            self.say(f"{data['candidate']} is promoted")
        elif kind == "opened":
            self.say(
                f"sealed units {data['first']}-{data['first'] + data['units'] - 1} are opened, for "
                f"{data['candidate']} against the base on {data['seeds']} fresh training seeds"
            )
        elif kind == "final":
            told = "; ".join(data["reasons"]) or f"p = {data['p']:.3g}"
            self.say(f"final: {'held up' if data['passed'] else 'did not hold up'}; {told}")

    def _minutes_per_run(self) -> float | None:
        whole = [
            sum(attempt.seconds for attempt in run.attempts)
            for run in self.state.runs.values()
            if run.finished and run.task.get("budget") == self.config.budget
        ]
        return float(np.mean(whole)) / 60 if whole else None


def _executor(config: CampaignConfig) -> Executor:
    if config.executor.kind == "ray":
        from autoresearch.execute.cluster import RayExecutor  # late: an extra, and slow to start

        return RayExecutor(config.executor, config.budgets.grace)
    return LocalExecutor(config.budgets.grace)


def recorded_config(directory: Path) -> CampaignConfig:
    """The configuration that the campaign in `directory` was last run with."""
    rows = [r for r in Ledger.reading(directory / LEDGER).rows if r.kind in ("campaign", "resumed")]
    if not rows:
        raise UserError(f"{directory / LEDGER} is empty: the campaign never began")
    return schema.build(CampaignConfig, rows[-1].data["config"])


def differing(began: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Settings, by their first key, that may not change in a campaign and did."""
    keys = sorted((began.keys() | now.keys()) - set(CHANGEABLE))
    return [key for key in keys if began.get(key) != now.get(key)]


def _gain(judged: Mapping[str, Mapping[str, Any]]) -> float | None:
    for gate in ("G4", "G3"):
        if gain := judged.get(gate, {}).get("gain"):
            return gain["mean"]
    return None
