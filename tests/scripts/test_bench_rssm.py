"""The comparison with TorchRL runs for real at its smallest: the same batches, as much work."""

import pytest

from common.files import read_json
from tests.commands import command, last_line
from tests.probes.recorded import record

SCRIPT = "scripts/bench_rssm.py"


def test_all_parts_at_their_smallest(tmp_path):
    pytest.importorskip("torchrl", reason="needs the extra `bench`")
    for split in ("train", "val"):
        record(tmp_path / "data", "D4_pilot", split)
    values = last_line(command(SCRIPT, "quick=true", cwd=tmp_path))
    (run,) = tmp_path.glob("runs/bench_rssm/*")
    result, details = read_json(run / "result.json"), read_json(run / "details.json")
    assert result.keys() == values.keys() and list(values)[-1] == "ratio"
    assert result["flops_ratio"] == pytest.approx(1, abs=0.05)  # or the ratio would mean little
    assert result["ratio"] == pytest.approx(
        result["ours_frames_per_second"] / result["torchrl_frames_per_second"]
    )
    assert 0 < result["psnr"] < 100 and 0 < result["psnr_torchrl"] < 100
    shares = details["settings"]["shares"]
    assert sum(shares.values()) == pytest.approx(1) and shares["convolutions, backward"] > 0


def test_without_data_it_says_what_to_collect(tmp_path):
    pytest.importorskip("torchrl", reason="needs the extra `bench`")
    done = command(SCRIPT, "quick=true", cwd=tmp_path, expect=2)
    assert "collect_replay.py dataset=D4_pilot" in done.stderr
