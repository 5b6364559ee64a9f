"""The simulator is taken apart for real, at its smallest."""

import platform

import pytest

from common.files import read_json
from tests.commands import command, last_line

SCRIPT = "scripts/profile_env.py"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="LLVM knows the host's family only")
def test_parts_and_the_code_of_other_cpus(tmp_path):
    options = "num_envs=2", "tick=2", "repeats=1", "cpus=haswell,icelake-server"
    values = last_line(command(SCRIPT, *options, cwd=tmp_path))
    (run,) = tmp_path.glob("runs/profile_env/*")
    details = read_json(run / "details.json")
    parts = details["parts_us_per_frame"]
    assert all(parts[name] > 0 for name in ("draw", "tick", "telemetry", "step"))
    assert [row["cpu"] for row in details["cpus"]] == ["haswell", "icelake-server"]
    for row in details["cpus"]:
        assert row["slow"] == 0 and {"addresses", "look-ups"} <= row.keys()
    assert values["slow_instructions"] == "0"
