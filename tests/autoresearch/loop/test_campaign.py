"""Whole campaigns over a trainer of milliseconds: promotions, failures, kills, budgets, repeats."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from autoresearch.execute.harness import Harness, Unusable
from autoresearch.execute.processes import Job, LocalExecutor
from autoresearch.judge.verify import verify
from autoresearch.loop.campaign import LEDGER, Campaign
from autoresearch.loop.ledger import Ledger, Row
from autoresearch.loop.state import INTERRUPTED, Attempt, RunState, State
from common.errors import ConfigError, UserError
from common.files import to_plain
from common.runs import ROOT
from tests.autoresearch import toys

DECISIONS = ("generation", "proposed", "refused", "judged", "promoted", "closed", "ended")
# Few seeds and units: what is tested here is the campaign, not its power.
QUICK = {"alpha": 0.9, "guard_alpha": 0.5, "batch": 50, "seed_units": 10}


def decisions(rows):
    """What was decided, without times and hashes."""
    return [(row.kind, row.data) for row in rows if row.kind in DECISIONS]


def ledger_of(config):
    return Ledger.reading(toys.Path(config.root) / config.name / LEDGER).rows


@pytest.fixture
def better(tmp_path):
    """A campaign that is given a better configuration and two that fail."""
    proposer = toys.transcript(
        tmp_path / "t.jsonl", {"skill": 0.7}, {"crash": 3}, {"skill": 0.75, "screen": 1}
    )
    return toys.config(
        tmp_path, gates=QUICK, proposer=proposer, budgets={"generations": 1, "grace": 0.5}
    )


def test_what_is_better_is_promoted_and_becomes_the_parent(tmp_path):
    lines = [{"skill": 0.7}, {"skill": 0.7}, {"skill": 0.1}, {"steps": 9}]
    proposer = toys.transcript(tmp_path / "t.jsonl", *lines) | {"candidates": 1}
    config = toys.config(tmp_path, gates=QUICK, proposer=proposer, budgets={"generations": 3})
    reason, state = toys.run(config)
    assert reason == "all generations are done"
    assert [c.promoted for c in state.candidates.values()] == [True, False, False]
    assert [g.parent for g in state.generations] == ["base", "g001_c01", "g001_c01"]
    first, second, third = state.generations
    assert first.candidates["g001_c01"].judged["G5"]["verdict"] == "confirmed"
    assert second.refused[0]["reasons"] == [
        "it changes nothing: the parent has these values already"
    ]
    assert second.candidates["g002_c01"].judged["G3"]["outcome"] == "futile"
    assert third.candidates["g003_c01"].overrides == {"skill": 0.7, "steps": 9}
    found = verify(toys.Path(config.root) / config.name)
    assert found.decisions > 10 and found.artifacts > 10


def test_failures_are_typed_and_never_a_number(better):
    _, state = toys.run(better)
    crashed, screened = state.candidates["g001_c02"], state.candidates["g001_c03"]
    assert crashed.judged["G1"]["failure"] == "crash"
    assert crashed.judged["G1"]["reasons"] == ["crash: it went wrong"]
    assert screened.judged["G1"]["reasons"] == ["spinning shows, which the parent does not show"]
    assert list(crashed.judged) == ["G1", "G5"]
    assert crashed.judged["G5"]["verdict"] == "inconclusive"


@pytest.mark.parametrize(
    ("change", "commands", "failure", "detail"),
    [
        ({"crash": 2}, {}, "refused", "it went wrong"),
        ({"skill": 0.5}, {"ticks": "updates"}, "unusable", "updates"),
    ],
)
def test_kinds_of_failure(tmp_path, change, commands, failure, detail):
    proposer = toys.transcript(tmp_path / "t.jsonl", change)
    config = toys.config(
        tmp_path, gates=QUICK, proposer=proposer, commands=commands, budgets={"generations": 1}
    )
    reason, state = toys.run(config)
    if failure == "unusable":  # the base itself
        assert reason == "base could not run: unusable: 'updates'"
    else:
        told = state.candidates["g001_c01"].judged["G1"]
        assert told["failure"] == failure and detail in told["reasons"][0]


def test_what_takes_too_long_is_ended_with_all_that_it_started(tmp_path):
    space = {"sleep": {"low": 0, "high": 99}, "child": {"low": 0, "high": 1, "integer": True}}
    proposer = toys.transcript(tmp_path / "t.jsonl", {"sleep": 60.0, "child": 1})
    budgets = {"generations": 1, "timeout": 3.0, "grace": 0.2}
    config = toys.config(tmp_path, gates=QUICK, space=space, proposer=proposer, budgets=budgets)
    began = time.monotonic()
    _, state = toys.run(config)
    assert time.monotonic() - began < 50
    assert state.candidates["g001_c01"].judged["G1"]["failure"] == "timeout"
    run = next(r for r in state.runs.values() if r.attempts[-1].reason == "timeout")
    assert run.last.seconds >= 3 and _processes(run.last.token) == []


def test_identical_candidates_do_not_pass(tmp_path):
    lines = [{"note": "b"}, {"note": "c"}]
    config = toys.config(
        tmp_path, proposer=toys.transcript(tmp_path / "t.jsonl", *lines),
        budgets={"generations": 1}, gates={"effect": 0.1},
    )  # fmt: skip
    _, state = toys.run(config)
    assert not any(c.promoted for c in state.candidates.values())


def test_rungs_halve_the_field(tmp_path):
    lines = [{"skill": 0.1}, {"skill": 0.7}, {"skill": 0.6}, {"skill": 0.2}]
    config = toys.config(
        tmp_path, proposer=toys.transcript(tmp_path / "t.jsonl", *lines),
        gates=QUICK | {"halving": [0.3, 0.6], "rung_units": 10, "finalists": 1},
        budgets={"generations": 1},
    )  # fmt: skip
    _, state = toys.run(config)
    passed = {name: [g for g in c.judged if c.passed(g)] for name, c in state.candidates.items()}
    assert passed["g001_c01"] == passed["g001_c04"] == ["G1"]
    assert passed["g001_c03"] == ["G1", "G2.1"]
    assert passed["g001_c02"][:4] == ["G1", "G2.1", "G2.2", "G3"]
    verify(toys.Path(config.root) / config.name)


def test_no_headroom_ends_a_campaign(tmp_path):
    config = toys.config(tmp_path, gates={"headroom": 0.9})
    reason, state = toys.run(config)
    assert reason.startswith("no headroom: the base's progress is 0.4") and not state.candidates


def test_without_its_proposer_nothing_begins(tmp_path):
    proposer = {"kind": "transcript", "transcript": str(tmp_path / "none.jsonl")}
    with pytest.raises(UserError, match=r"proposer\.transcript=.*none"):
        toys.run(toys.config(tmp_path, proposer=proposer))
    assert not Ledger.reading(tmp_path / "toy" / LEDGER).rows


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "../x"}, "a campaign's name has only"),
        ({"final": {"first": 999_999, "units": 10}}, "final has units below first_unit"),
    ],
)
def test_settings_that_would_spoil_others_are_refused(tmp_path, changes, message):
    with pytest.raises((ConfigError, UserError), match=message):
        toys.config(tmp_path, **changes)


def test_a_root_that_cannot_be_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot write .*Not a directory"):
        toys.run(toys.config(tmp_path / "file"))


def test_stages_stop_where_they_say(better):
    reason, state = toys.run(better, "propose")
    assert reason == "propose is done" and len(state.candidates) == 3
    assert not any(c.judged for c in state.candidates.values())
    _, state = toys.run(better, "judge")
    assert all("G5" in c.judged for c in state.candidates.values())
    assert not any(c.promoted for c in state.candidates.values())
    _, state = toys.run(better, "promote")
    assert state.candidates["g001_c01"].promoted and state.generation.closed


@pytest.mark.parametrize(
    ("budgets", "reason"),
    [
        ({"ticks": 300}, "budget: the next run would exceed 300 ticks"),
        ({"seconds": 0.05}, "budget: 0.05 seconds of processes are spent"),
    ],
)
def test_budgets_end_a_campaign_and_outlast_it(better, tmp_path, budgets, reason):
    small = dataclasses.replace(
        better, budgets=toys.schema.build(type(better.budgets), {"generations": 1, **budgets})
    )
    assert toys.run(small)[0] == reason
    rows = ledger_of(small)
    told, state = toys.run(small)  # again: what is spent stays spent
    assert told == reason and state.ticks <= 300
    assert ledger_of(small) == rows  # and looking again is no event
    verify(tmp_path / "toy")
    assert toys.run(better)[0] == "all generations are done"  # by a larger one it goes on


@pytest.mark.slow
@pytest.mark.parametrize("before", [False, True])
def test_killed_at_every_transition_it_comes_to_the_same_decisions(tmp_path, before):
    """Each life writes a few rows and dies: with the last one on the disk, or with all done
    that the next one would have told of."""
    proposer = toys.transcript(tmp_path / "t.jsonl", {"skill": 0.7}, {"crash": 3})
    config = toys.config(
        tmp_path, gates=QUICK, proposer=proposer, executor={"jobs": 2, "attempts": 100},
        budgets={"generations": 1, "grace": 0.2},
    )  # fmt: skip
    whole = dataclasses.replace(config, name="whole")
    toys.run(whole)
    lives = 0
    while not _lived_to_the_end(config, 2 + lives % 5, before):
        time.sleep(0.2)  # what it started may come to its end
        lives += 1
        assert lives < 150
    rows = ledger_of(config)
    assert decisions(rows) == decisions(ledger_of(whole))
    # A life that died after the end leaves nothing to take up.
    assert lives > 10 and sum(row.kind == "resumed" for row in rows) in (lives - 1, lives)
    verify(tmp_path / "toy")


def _lived_to_the_end(config, rows, before):
    """Run a campaign in a process that dies when it has written `rows` rows (or, with `before`, is
    about to write the next one); whether it ended first."""
    child = os.fork()
    if not child:
        append, written = Ledger.append, 0

        def fatal(ledger, kind, data):
            nonlocal written
            if before and written == rows:
                os.kill(os.getpid(), signal.SIGKILL)
            row = append(ledger, kind, data)
            written += 1
            if not before and written == rows:
                os.kill(os.getpid(), signal.SIGKILL)
            return row

        Ledger.append = fatal
        code = 1
        try:
            toys.run(config)
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGKILL)
    return status == 0


def killed_when_something_runs(config, times=1):
    """A campaign, killed with -9 as soon as its ledger tells of `times` running processes."""
    child = os.fork()
    if not child:
        try:
            toys.run(config)
        finally:
            os._exit(0)
    ledger = toys.Path(config.root) / config.name / LEDGER
    while not (ledger.is_file() and ledger.read_bytes().count(b'"running"') >= times):
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def test_a_process_that_outlives_its_campaign_is_ended_and_its_run_taken_up(tmp_path):
    config = toys.config(
        tmp_path, gates=QUICK, budgets={"generations": 1, "grace": 0.2},
        commands={"train": [*toys.COMMANDS["train"], "sleep=1.5"]},
        proposer=toys.transcript(tmp_path / "t.jsonl", {"skill": 0.7}),
    )  # fmt: skip
    killed_when_something_runs(config)
    ledger = tmp_path / "toy" / LEDGER
    run = next(iter(State.of(Ledger.reading(ledger).rows).runs.values()))
    assert _processes(run.last.token)
    with Campaign.opened(config, lambda text: None) as campaign:
        assert _processes(run.last.token) == []
        told = campaign.state.run(run.id)
        assert [a.reason for a in told.attempts] == [INTERRUPTED]
        assert campaign.run() == "all generations are done"
        assert len(campaign.state.run(run.id).attempts) == 2


def test_a_campaign_may_be_interrupted_more_often_than_a_run_may_be_lost(tmp_path):
    """Its own death is nobody's failure."""
    config = toys.config(
        tmp_path, gates=QUICK, budgets={"generations": 1, "grace": 0.2}, executor={"attempts": 1},
        commands={"train": [*toys.COMMANDS["train"], "sleep=0.5"]},
        proposer=toys.transcript(tmp_path / "t.jsonl", {"skill": 0.7}),
    )  # fmt: skip
    for times in range(1, 4):
        killed_when_something_runs(config, times)
    reason, state = toys.run(config)
    assert reason == "all generations are done" and state.candidates["g001_c01"].promoted
    first = next(iter(state.runs.values()))
    assert [a.reason for a in first.attempts] == [*3 * [INTERRUPTED], ""]
    assert all(0 <= a.seconds < 30 for a in first.attempts) and state.seconds > 0
    verify(tmp_path / "toy")


def test_term_ends_a_campaign_and_all_that_it_runs(tmp_path):
    content = {key: value for key, value in to_plain(toys.config(tmp_path)).items() if value}
    content["commands"]["train"] += ["sleep=30"]
    content = json.loads(json.dumps(content))
    script = (
        "import json, sys\n"
        "from autoresearch import __main__ as program\n"
        "from autoresearch.config import CampaignConfig\n"
        "from common import cli, schema\n"
        "config = schema.build(CampaignConfig, json.loads(sys.argv[1]))\n"
        "program.listen()\n"
        "cli.run_main(lambda: program._run(config, 'all'))\n"
    )
    command = [sys.executable, "-c", script, json.dumps(content)]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=ROOT)
    ledger = tmp_path / "toy" / LEDGER
    while not (ledger.is_file() and b'"running"' in ledger.read_bytes()):
        assert child.poll() is None
        time.sleep(0.02)
    run = next(iter(State.of(Ledger.reading(ledger).rows).runs.values()))
    assert _processes(run.last.token)
    child.send_signal(signal.SIGTERM)
    assert child.wait(20) == 128 + signal.SIGTERM
    assert _processes(run.last.token) == []


def test_what_leaves_its_process_group_is_ended_too(tmp_path):
    executor = LocalExecutor(0.2)
    script = "import os, time\nif not os.fork():\n    os.setsid(); time.sleep(99)\ntime.sleep(0.5)"
    job = Job("f" * 16, ["-c", script], tmp_path, (), "a", tmp_path / "log", 30.0)
    executor.start(job)
    assert [ended.code for ended in executor.wait()] == [0]
    assert _processes("f" * 16) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"progress": float("nan")}, "progress of unit 7 is nan, not a finite number"),
        ({"progress": float("inf")}, "progress of unit 7 is inf, not a finite number"),
        ({"progress": 10**400}, "int too large"),
        ({"progress": "0.5"}, "progress of unit 7 is '0.5', not a finite number"),
        ({"speed": "fast"}, "speed of unit 7 is 'fast', not a number"),
        ({"seed": 8}, "unit 8 twice"),
    ],
)
def test_a_judge_that_leaves_no_numbers_is_unusable(tmp_path, change, message):
    harness = Harness(toys.config(tmp_path), tmp_path)
    rows = [{"seed": n, "progress": 0.5, "off_track_rate": 0, "speed": 40} for n in (7, 8)]
    rows[0] |= change
    task = {"kind": "judge", "candidate": "base", "of": "t", "first": 7, "count": 2}
    run = RunState("run_001", "j", task, [Attempt(1, "token")])
    (tmp_path / "runs" / "run_001").mkdir(parents=True)
    found = {"rows": rows, "evaluator": "toy"}
    (tmp_path / "runs" / "run_001" / "eval.json").write_text(json.dumps(found))
    with pytest.raises(Unusable, match=message):
        harness.collect(run)


def test_a_measure_beyond_its_stated_range_ends_a_candidate_and_no_campaign(tmp_path):
    gates = QUICK | {"primary": {"name": "progress", "width": 0.2}}
    config = toys.config(
        tmp_path, gates=gates, budgets={"generations": 1},
        proposer=toys.transcript(tmp_path / "t.jsonl", {"skill": 0.0}, {"skill": 0.45}),
    )  # fmt: skip
    reason, state = toys.run(config)
    assert reason == "all generations are done"
    told = state.candidates["g001_c01"].judged["G3"]
    assert told["failure"] == "unusable" and "progress: a difference of -" in told["reasons"][0]
    verify(tmp_path / "toy")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"commands": {"train": []}}, "train is empty"),
        ({"commands": {"train": ["t.py", "{name} {budget}"]}}, r"train needs \{seed\}"),
        ({"commands": {"train": ["t.py", "{name.x} {name} {seed} {budget} {b}"]}},
         r"\{b\} cannot be filled in; there are \{root\}"),
        ({"commands": {"judge": ["j.py", "{run}"]}}, "judge is not told which units"),
        ({"commands": {"judge": ["j.py", "{units}"]}}, r"judge needs \{run\}"),
        ({"commands": {"resume": ["t.py"]}}, r"resume needs \{run\}"),
        ({"gates": {"effect": float("inf")}}, "gates.effect is a finite number, not inf"),
        ({"budgets": {"timeout": float("inf")}}, "budgets.timeout is a finite number"),
        ({"budgets": {"generations": 1000}, "gates": {"alpha": 0.05}}, "than the error budget"),
        ({"gates": {"seed_units": 4001}}, "seed_units is 1 to 4000"),
        ({"proposer": {"kind": "llm", "endpoint": {"url": "http://127.0.0.1:abc/v1"}}}, "url is"),
        ({"proposer": {"kind": "llm", "endpoint": {"url": "http://exa mple/v1"}}}, "url is"),
    ],
)  # fmt: skip
def test_settings_that_could_not_work_are_refused(tmp_path, changes, message):
    with pytest.raises(ConfigError, match=message):
        toys.config(tmp_path, **changes)


def test_a_run_that_is_lost_again_and_again_is_given_up(tmp_path):
    space = {"lost": {"low": 0, "high": 1}}
    script = "import os; os.kill(os.getpid(), 9)"
    commands = {"train": ["-c", script, "{name} {seed} {budget}"], "resume": []}
    config = toys.config(tmp_path, commands=commands, space=space, executor={"attempts": 2})
    reason, state = toys.run(config)
    assert reason == "base could not run: lost: signal 9 from outside"
    assert [len(run.attempts) for run in state.runs.values()] == [2]


def test_one_campaign_runs_once_at_a_time(better):
    with Campaign.opened(better, print), pytest.raises(UserError, match="another process"):
        toys.run(better)


def test_a_campaign_is_not_taken_up_with_other_settings_or_code(better, monkeypatch):
    toys.run(better, "propose")
    with pytest.raises(ConfigError, match="was begun with another seed"):
        toys.run(dataclasses.replace(better, seed=7))
    monkeypatch.setattr("autoresearch.loop.campaign.code_state", lambda: {"sha256": "f" * 64})
    with pytest.raises(UserError, match="was begun with other code"):
        toys.run(better)


def test_runs_by_other_code_or_another_ruler_stop_the_campaign(better, monkeypatch):
    toys.run(better, "propose")
    monkeypatch.setenv("TOY_CODE", "e" * 64)
    with pytest.raises(UserError, match="trained by other code than the runs before it"):
        toys.run(better)


def test_the_same_wish_is_one_run(better):
    _, state = toys.run(better)
    assert len({run.key for run in state.runs.values()}) == len(state.runs)
    assert all(len(run.attempts) == 1 for run in state.runs.values())


class TestFinal:
    """The winner on sealed units: once, after the search, whatever comes later."""

    def test_a_gain_holds_up_and_is_not_measured_twice(self, better, tmp_path):
        toys.run(better)
        reason, state = toys.run(better, "final")
        assert reason == "the gain held up" and state.final["passed"]
        assert state.final["gain"]["n"] == 5 and state.final["p"] == 2**-5
        sealed = [r for r in state.runs.values() if r.task.get("sealed")]
        assert len(sealed) == 10 and {r.task["first"] for r in sealed} == {500}
        used = {r.task["seed"] for r in state.runs.values() if "seed" in r.task}
        rows = ledger_of(better)
        opened = next(row.number for row in rows if row.kind == "opened")
        earlier = {
            row.data["task"]["seed"]
            for row in rows[:opened]
            if row.kind == "claimed" and "seed" in row.data["task"]
        }
        assert len(used) == len(earlier) + 5
        again, _ = toys.run(better, "final")
        assert again == reason and ledger_of(better)[len(rows) :] == []
        verify(tmp_path / "toy")

    def test_it_ends_the_search_for_good(self, better):
        toys.run(better)
        toys.run(better, "final")
        more = dataclasses.replace(
            better, budgets=dataclasses.replace(better.budgets, generations=9)
        )
        reason, state = toys.run(more)
        assert reason == "its sealed units have been opened" and len(state.generations) == 1

    def test_not_before_the_end(self, better):
        with pytest.raises(UserError, match="has not ended, and sealed units are opened once"):
            toys.run(better, "final")
        toys.run(better, "propose")
        with pytest.raises(UserError, match="has not ended"):
            toys.run(better, "final")

    def test_a_spent_budget_is_an_end_and_does_not_bound_the_final(self, better, tmp_path):
        toys.run(better)
        _, state = toys.run(better)
        spent = dataclasses.replace(
            better, budgets=dataclasses.replace(better.budgets, generations=2, ticks=state.ticks)
        )
        assert toys.run(spent)[0].startswith("budget: ")
        assert toys.run(spent, "final")[0] == "the gain held up"
        verify(tmp_path / "toy")

    def test_without_a_promotion_nothing_is_opened(self, tmp_path):
        proposer = toys.transcript(tmp_path / "t.jsonl", {"skill": 0.1})
        config = toys.config(tmp_path, gates=QUICK, proposer=proposer, budgets={"generations": 1})
        toys.run(config)
        rows = ledger_of(config)
        reason, state = toys.run(config, "final")
        assert reason.startswith("nothing was promoted") and state.opened is None
        assert ledger_of(config) == rows

    def test_a_winner_that_fails_on_a_fresh_seed_has_not_held_up(self, better, tmp_path):
        toys.run(better)
        with Campaign.opened(better, lambda text: None) as campaign:
            collect = campaign.harness.collect

            def failing(run):
                if run.task.get("sealed"):
                    raise Unusable("it went wrong")
                return collect(run)

            campaign.harness.collect = failing
            assert campaign.run("final") == "the gain did not hold up"
            assert campaign.state.final["failure"] == "unusable"
        verify(tmp_path / "toy")


class TestVerify:
    @pytest.fixture
    def done(self, better, tmp_path):
        toys.run(better)
        return tmp_path / "toy"

    def test_a_changed_artifact_is_found(self, done):
        for path in sorted((done / "artifacts").iterdir()):
            content = path.read_bytes()
            path.write_bytes(content.replace(b"0", b"1", 1))
            with pytest.raises(UserError, match="was changed"):
                verify(done)
            path.write_bytes(content)
        path.unlink()
        with pytest.raises(UserError, match="no such artifact"):
            verify(done)

    @pytest.mark.parametrize(
        ("kind", "key", "value"),
        [
            ("judged", "passed", True),
            ("promoted", "candidate", "g001_c02"),
            ("generation", "seeds", 3),
            ("proposed", "overrides", {"skill": 0.9}),
            ("ended", "reason", "enough"),
            ("claimed", "task", {"kind": "train", "overrides": {}, "seed": 7, "budget": 100}),
            ("proposed", "proposal", None),
            ("proposed", "proposal", {"change": {}, "verdict": "promote"}),
        ],
    )
    def test_a_decision_that_does_not_follow_is_found_though_all_hashes_are_right(
        self, done, kind, key, value
    ):
        rows, forged = Ledger.reading(done / LEDGER).rows, []
        for row in rows:
            data = dict(row.data)
            if row.kind == kind and data.get(key) != value:
                data[key] = value
            forged.append(Row.after(forged[-1] if forged else None, row.kind, data))
        (done / LEDGER).write_bytes(b"".join(row.line() for row in forged))
        with pytest.raises(UserError, match=r"line \d+"):
            verify(done)

    def test_a_row_of_unknown_kind_is_found(self, done, monkeypatch):
        rows = Ledger.reading(done / LEDGER).rows
        with monkeypatch.context() as patched:
            patched.setattr("autoresearch.loop.ledger.KINDS", ("blessed",))
            blessed = Row.after(rows[-1], "blessed", {"candidate": "g001_c01"})
        forged = [*rows, blessed]
        (done / LEDGER).write_bytes(b"".join(row.line() for row in forged))
        with pytest.raises(UserError, match="unknown kind of row, 'blessed'"):
            verify(done)

    def test_an_unfinished_campaign_verifies_too(self, done):
        rows = Ledger.reading(done / LEDGER).rows
        for count in range(1, len(rows), 5):
            (done / LEDGER).write_bytes(b"".join(row.line() for row in rows[:count]))
            assert verify(done).rows == count


def _processes(token):
    from autoresearch.execute.processes import _alive

    return _alive(token)


def test_the_ledger_is_plain_json(better):
    toys.run(better)
    for row in ledger_of(better):
        assert "NaN" not in json.dumps(row.data)
