"""A campaign file that could not work is refused when it is read."""

import json

import pytest

from common.errors import ConfigError, UserError
from tests.autoresearch import toys


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"commands": {"train": []}}, "train is empty"),
        ({"commands": {"train": ["t.py", "{name} {budget}"]}}, r"train needs \{seed\}"),
        ({"commands": {"train": ["t.py", "{name.x} {name} {seed} {budget} {b}"]}},
         r"\{b\} cannot be replaced; there are \{root\}"),
        ({"commands": {"judge": ["j.py", "{run}"]}}, "judge has no units"),
        ({"commands": {"judge": ["j.py", "{units}"]}}, r"judge needs \{run\}"),
        ({"commands": {"resume": ["t.py"]}}, r"resume needs \{run\}"),
        ({"gates": {"effect": float("inf")}}, "gates.effect: expected a number, got inf"),
        ({"budgets": {"timeout": float("inf")}}, "budgets.timeout: expected a number"),
        ({"budgets": {"generations": 1000}, "gates": {"alpha": 0.05}}, "than the error budget"),
        ({"gates": {"seed_units": 4001}}, "seed_units is 1 to 4000"),
        ({"proposer": {"kind": "llm", "endpoint": {"url": "http://127.0.0.1:abc/v1"}}}, "url is"),
        ({"proposer": {"kind": "llm", "endpoint": {"url": "http://exa mple/v1"}}}, "url is"),
    ],
)  # fmt: skip
def test_settings_that_could_not_work_are_refused(tmp_path, changes, message):
    with pytest.raises(ConfigError, match=message):
        toys.config(tmp_path, **changes)


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


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ({"seed": {"low": 1, "high": 2}}, "seed cannot be searched"),
        ({"evaluation.test_seeds": {"choices": ["0", "1"]}}, "cannot be searched"),
        ({"+skill": {"low": 0, "high": 1}}, "bad key"),
        ({"budget": {"low": 1, "high": 9}}, "budget is set by commands.train"),
        ({"skill": {"low": 1, "high": 1}}, "low is below high"),
        ({"skill": {"low": 0, "high": 1, "log": True}}, "low is above 0"),
        ({"skill": {"choices": [1]}}, "at least two"),
        ({"skill": {}}, "low and high, or choices"),
    ],
)
def test_a_space_that_cannot_be_searched_is_refused(tmp_path, space, message):
    data = json.loads(json.dumps(space))
    with pytest.raises(ConfigError, match=message):
        toys.schema.build(
            toys.CampaignConfig,
            {"name": "x", "commands": toys.COMMANDS, "budget": 1, "space": data,
             "gates": toys.GATES},
        )  # fmt: skip


def test_an_address_goes_with_ray(tmp_path):
    with pytest.raises(ConfigError, match="address goes with kind=ray"):
        toys.config(tmp_path, executor={"address": "auto"})
