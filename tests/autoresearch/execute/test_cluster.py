"""Campaigns on Ray: a real cluster of two nodes on this machine."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from autoresearch.execute.leash import leashed
from autoresearch.judge.verify import verify
from autoresearch.loop.campaign import LEDGER
from autoresearch.loop.ledger import Ledger
from autoresearch.loop.state import LOST, State
from common.errors import ConfigError, UserError
from tests.autoresearch import toys
from tests.autoresearch.loop.test_campaign import QUICK, _processes, decisions, ledger_of

pytest.importorskip("ray", reason="needs the extra cluster")


@pytest.fixture(scope="module")
def cluster():
    """A head without room for tasks; nodes come and go with the tests."""
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    quiet = {"include_dashboard": False, "num_cpus": 0, "object_store_memory": 100 << 20}
    cluster = Cluster(initialize_head=True, head_node_args=quiet)
    yield cluster
    cluster.shutdown()


@pytest.fixture
def nodes(cluster):
    found = [cluster.add_node(num_cpus=1, object_store_memory=100 << 20) for _ in range(2)]
    yield found
    for node in found:
        if node in cluster.worker_nodes:
            cluster.remove_node(node)


def campaign(root, cluster, seconds=0.0, **changes):
    proposer = toys.transcript(root / "t.jsonl", {"skill": 0.7}, {"crash": 3})
    train = [*toys.COMMANDS["train"], f"sleep={seconds}"]
    executor = {"kind": "ray", "jobs": 2, "address": cluster.address}
    return toys.config(
        root, gates=QUICK, proposer=proposer, executor=executor, commands={"train": train},
        budgets={"generations": 1, "grace": 0.2}, **changes,
    )  # fmt: skip


@pytest.mark.slow
def test_a_node_killed_in_mid_candidate_changes_no_decision(tmp_path, cluster, nodes):
    config = campaign(tmp_path, cluster, seconds=2.0)
    ledger, killed = tmp_path / "toy" / LEDGER, []

    def kill():
        """End the node on which the base is trained, which takes seconds."""
        while not (ledger.is_file() and b'"running"' in ledger.read_bytes()):
            time.sleep(0.05)
        while True:
            run = next(iter(State.of(Ledger.reading(ledger).rows).runs.values()))
            for node in nodes:
                if _descendants(node).intersection(_processes(run.last.token)):
                    killed.append(run.last.token)
                    cluster.remove_node(node, allow_graceful=False)
                    return
            time.sleep(0.05)

    killer = threading.Thread(target=kill)
    killer.start()
    reason, state = toys.run(config)
    killer.join()
    assert reason == "all generations are done"
    (lost,) = [run for run in state.runs.values() if len(run.attempts) > 1]
    assert [lost.attempts[0].token] == killed and lost.task["candidate"] == "base"
    assert [a.reason for a in lost.attempts] == [LOST, ""]
    assert [a.ticks for a in lost.attempts] == [100, 100]  # what the lost one did counts in full
    until = time.monotonic() + 10
    while _processes(killed[0]) and time.monotonic() < until:
        time.sleep(0.1)
    assert not _processes(killed[0])  # what the node had started went with it
    verify(tmp_path / "toy")

    (tmp_path / "local").mkdir()
    alone = campaign(tmp_path / "local", cluster)
    toys.run(toys.config(
        tmp_path / "local", gates=QUICK, proposer=vars(alone.proposer) | {"endpoint": {}},
        budgets={"generations": 1},
    ))  # fmt: skip
    assert decisions(ledger_of(config)) == decisions(ledger_of(alone))


@pytest.mark.slow
def test_a_node_with_other_code_is_refused_by_name(tmp_path, cluster, nodes, monkeypatch):
    monkeypatch.setattr("autoresearch.execute.cluster.code_state", lambda: {"sha256": "e" * 64})
    with pytest.raises(UserError, match=r"node \S+ has other code .* \(eeeeeeeeeeee\)"):
        toys.run(campaign(tmp_path, cluster))


@pytest.mark.slow
def test_what_cannot_be_had_is_said(tmp_path, cluster, nodes):
    with pytest.raises(UserError, match="no node of the cluster has 500 CPUs"):
        toys.run(toys.config(
            tmp_path, executor={"kind": "ray", "address": cluster.address, "cpus": 500}
        ))  # fmt: skip
    with pytest.raises(UserError, match=r"address=127\.0\.0\.1:1 is not a cluster's head"):
        toys.run(toys.config(tmp_path, executor={"kind": "ray", "address": "127.0.0.1:1"}))


def test_an_address_goes_with_ray(tmp_path):
    with pytest.raises(ConfigError, match="address goes with kind=ray"):
        toys.config(tmp_path, executor={"address": "auto"})


class TestLeash:
    @pytest.mark.parametrize("code", [0, 7])
    def test_it_ends_as_its_command_does(self, code):
        command = leashed([sys.executable, "-c", f"raise SystemExit({code})"], 0.1)
        assert subprocess.run(command, start_new_session=True).returncode == code

    @pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
    def test_signals_are_told_on(self, number):
        command = leashed([sys.executable, "-c", f"import os; os.kill(os.getpid(), {number})"], 0.1)
        assert subprocess.run(command, start_new_session=True).returncode == -number

    def test_a_command_outlives_no_parent(self, tmp_path):
        told = tmp_path / "pid"
        sleeper = (
            f"import os, time; open({str(told)!r}, 'w').write(str(os.getpid())); time.sleep(99)"
        )
        parent = (
            "import subprocess, sys, time\nfrom autoresearch.execute.leash import leashed\n"
            f"command = leashed([sys.executable, '-c', {sleeper!r}], 0.1)\n"
            "subprocess.Popen(command, start_new_session=True)\ntime.sleep(99)"
        )
        process = subprocess.Popen([sys.executable, "-c", parent])
        while not (told.is_file() and told.read_text()):
            time.sleep(0.02)
        process.kill()
        process.wait()
        until = time.monotonic() + 10
        while _lives(int(told.read_text())) and time.monotonic() < until:
            time.sleep(0.05)
        assert not _lives(int(told.read_text()))


def _lives(pid):
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def _descendants(node):
    """Pids of all that a node's raylet has started."""
    (raylet,) = [p.process.pid for p in node.all_processes["raylet"]]
    children = {}
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((directory / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            continue
        children.setdefault(parent, set()).add(int(directory.name))
    found, pending = set(), [raylet]
    while pending:
        for child in children.get(pending.pop(), set()) - found:
            found.add(child)
            pending.append(child)
    return found
