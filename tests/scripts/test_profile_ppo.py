"""Training is taken apart for real, at its smallest."""

import pytest

from common.files import read_json
from tests.commands import command, last_line

SCRIPT = "scripts/profile_ppo.py"


def measured(tmp_path, part):
    """The finished command, its result and the part's details."""
    done = command(SCRIPT, "quick=true", f"part={part}", "threads=1", cwd=tmp_path)
    (run,) = tmp_path.glob("runs/profile_ppo/*")
    result, details = read_json(run / "result.json"), read_json(run / "details.json")
    assert result.keys() == last_line(done).keys() and details.keys() == {part}
    assert all(isinstance(value, float) for value in result.values())
    return done, result, details[part]


def test_a_profile_accounts_for_all_of_the_time(tmp_path):
    done, result, details = measured(tmp_path, "profile")
    shares = details["shares"]
    assert sum(shares.values()) == pytest.approx(1)
    found = ("convolutions, backward", "convolutions, forward", "linear layers", "optimiser",
             "gather rows", "pixels to float, copies", "activations")  # fmt: skip
    assert all(shares[f"update: {name}"] > 0 for name in found)
    assert result["convolution_share"] == pytest.approx(
        shares["update: convolutions, forward"] + shares["update: convolutions, backward"]
    )
    assert result["convolution_gflops"] > 0 and "GFLOP/s; here a matrix product" in done.stdout


def test_variants_are_compared_with_the_default(tmp_path):
    done, result, details = measured(tmp_path, "variants")
    variants = details["variants"]
    assert variants["default"]["update_ratio"] == variants["default"]["collect_ratio"] == 1
    assert {"contiguous", "bf16", "micro_batch_256"} <= variants.keys()
    assert result == {
        f"update_ratio_{name}": row["update_ratio"]
        for name, row in variants.items()
        if name != "default"
    }
    assert "variants: round 1 of 1" in done.stdout


def test_validation_is_compared_with_training_alone(tmp_path):
    _, result, details = measured(tmp_path, "validation")
    seconds = details["seconds_per_tick"]
    assert len(seconds["with"]) == len(seconds["without"]) == 1
    expected = seconds["with"][0] / seconds["without"][0] - 1
    assert result["validation_cost"] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["part=speed"], "validation"),
        (["rounds=0"], "rounds is 1 to 100, not 0"),
        (["threads=1000"], "threads is 1 to 256, not 1000"),
        (["num_envs=8"], "num_envs"),
        (["record=true", "quick=true"], "leave out quick and part"),
        (["record=true", "part=profile"], "leave out quick and part"),
    ],
)
def test_wrong_settings_are_explained(tmp_path, arguments, message):
    done = command(SCRIPT, *arguments, cwd=tmp_path, expect=2)
    assert message in done.stderr and not list(tmp_path.iterdir())
