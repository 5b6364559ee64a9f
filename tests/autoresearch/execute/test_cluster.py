"""Campaigns on Ray: a real cluster of two nodes on this machine."""

import os
import threading
import time
from pathlib import Path

import pytest

from autoresearch.execute.processes import processes_of
from autoresearch.loop.ledger import LEDGER, Ledger
from autoresearch.loop.state import State
from autoresearch.loop.verify import verify
from autoresearch.types.run import Failure
from common.errors import UserError
from tests.autoresearch import toys
from tests.autoresearch.toys import QUICK, decisions, ledger_of

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
    members = [cluster.add_node(num_cpus=1, object_store_memory=100 << 20) for _ in range(2)]
    yield members
    for node in members:
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
                if _descendants(node).intersection(processes_of(run.last.token)):
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
    assert [lost.attempts[0].token] == killed and lost.task.candidate == "base"
    assert [a.failure for a in lost.attempts] == [Failure.LOST, None]
    assert [a.ticks for a in lost.attempts] == [100, 100]  # what the lost one did counts in full
    until = time.monotonic() + 10
    while processes_of(killed[0]) and time.monotonic() < until:
        time.sleep(0.1)
    assert not processes_of(killed[0])  # what the node had started went with it
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
    members, pending = set(), [raylet]
    while pending:
        for child in children.get(pending.pop(), set()) - members:
            members.add(child)
            pending.append(child)
    return members
