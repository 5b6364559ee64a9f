"""The comparison with Gymnasium runs for real at its smallest, and records keep a row per CPU."""

import pytest

from common.files import read_json
from scripts.bench_env import this_cpu, with_row
from tests.commands import command, last_line

SCRIPT = "scripts/bench_env.py"


def test_the_ratio_and_the_cpu_that_it_belongs_to(tmp_path):
    pytest.importorskip("Box2D", reason="needs the extra `parity`")
    done = command(
        SCRIPT, "quick=true", "rounds=1", "reference_steps=10", "num_envs=64", cwd=tmp_path
    )
    values = last_line(done)
    (run,) = tmp_path.glob("runs/bench_env/*")
    result, cpu = read_json(run / "result.json"), read_json(run / "details.json")["cpu"]
    assert result["ratio_per_core"] == pytest.approx(result["ours"] / result["reference"])
    assert result["ratio_per_core"] > 20
    assert cpu == this_cpu() and values["cpu"] == cpu["kind"]
    assert f"CPU: {cpu['cpu']} by {cpu['maker']}, kind {cpu['kind']}" in done.stdout


def test_a_new_measurement_replaces_only_the_row_of_its_kind_of_cpu():
    rows = [{"kind": "znver3", "ours": 1.0}, {"kind": "icelake-server", "ours": 2.0}]
    replaced = with_row(rows, {"kind": "znver3", "ours": 3.0})
    assert [row["ours"] for row in replaced] == [3.0, 2.0]
    added = with_row(rows, {"kind": "znver5", "ours": 4.0})
    assert [row["ours"] for row in added] == [1.0, 2.0, 4.0]
