"""Rules: failures are answered first, then settings are tuned; and the shipped rules are sound."""

import pytest

from autoresearch.commands.settings import campaigns, load
from autoresearch.config import Range
from autoresearch.propose.brief import Exhausted
from autoresearch.propose.coach import RuleProposer
from autoresearch.propose.rules import RULES, Condition, Rule, load_rules
from common.config import CONF_DIR
from common.errors import ConfigError
from common.runs import NO_SOURCE, ROOT, SOURCE_PATTERNS
from tests.autoresearch import toys
from tests.autoresearch.toys import brief, trial


class TestRules:
    RULES = (
        Rule("spins", "grass", 1.5, "less grass", "off_track_rate", -1,
             Condition("diagnostics/spinning", above=0.5), start=0.2),
        Rule("skill up", "skill", 1.5, "more skill", "progress", 1),
        Rule("other notes", "note", 2.0, "another note", "speed", 1),
        Rule("not here", "ppo.clip", 2.0, "nothing", "progress", 1),
    )  # fmt: skip

    def test_failures_are_answered_first(self, tmp_path):
        proposer = RuleProposer(toys.config(tmp_path), self.RULES)
        assert proposer.propose(brief()).change == {"skill": 0.6}
        proposal = proposer.propose(brief(measures={"diagnostics/spinning": 1.0}))
        assert proposal.change == {"grass": 0.2} and proposal.source == "rule spins"
        assert proposal.observable == "off_track_rate" and proposal.sign == -1
        assert proposer.propose(brief(measures={"diagnostics/spinning": None})).change != {
            "grass": 0.2
        }

    def test_each_step_goes_further_until_there_is_none(self, tmp_path):
        proposer = RuleProposer(toys.config(tmp_path), self.RULES)
        history, changes = (), []
        while True:
            try:
                proposal = proposer.propose(brief(history=history))
            except Exhausted:
                break
            changes.append(proposal.change)
            history = (*history, trial(proposal.change))
        assert changes == [
            {"skill": 0.6},
            {"note": "b"},
            {"skill": 0.9},
            {"note": "c"},
            {"skill": 1.0},
        ]

    def test_every_shipped_rule_can_move_something(self):
        for rule in load_rules("coach"):
            low, high = (-100.0, 0.0) if (rule.start or 1) < 0 else (0.0, 100.0)
            if rule.key.endswith(
                ("log_std_final", "log_std_max", "time", "off_track", "wheels_off")
            ):
                low, high = -100.0, 0.0
            value = rule.start or (low + high) / 2
            assert rule.moved(value, Range(low, high), 1) not in (None, value), rule.name

    def test_the_campaigns_search_what_most_shipped_rules_change(self):
        spaces = {key for name in campaigns() for key in load([f"campaign={name}"])[0].space}
        usable = [rule for rule in load_rules("coach") if rule.key in spaces]
        assert len(usable) >= 20 and any(rule.when for rule in usable)

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ("rules: [{nme: x}]", "unknown key 'rules.0.nme'"),
            ("rules: [", "while parsing"),
            ("rules: [{name: a, key: b, factor: 1, hypothesis: c, observable: d, sign: 1}]",
             "factor is not 1"),
            ("rules: [{name: a, key: b, factor: 2, hypothesis: c, observable: d, sign: 0}]",
             "sign: 0 is not one of 1, -1"),
            ("rules: [{name: a, key: b, factor: 2, hypothesis: c, observable: d, sign: 1, "
             "when: {measure: m}}]", "above or below, one of the two"),
        ],
    )  # fmt: skip
    def test_a_wrong_rules_file_says_what_is_wrong_and_where(self, tmp_path, content, message):
        (tmp_path / "mine.yaml").write_text(content)
        with pytest.raises(ConfigError, match=rf"mine\.yaml: .*{message}"):
            load_rules("mine", tmp_path)
        with pytest.raises(ConfigError, match="did you mean 'mine'"):
            load_rules("mime", tmp_path)

    def test_rules_are_a_part_of_the_code_hash_and_campaign_files_are_not(self):
        def files(patterns):
            return {path for pattern in patterns for path in ROOT.glob(pattern)}

        source = files(SOURCE_PATTERNS) - files(NO_SOURCE)
        assert RULES / "coach.yaml" in source
        assert CONF_DIR / "autoresearch" / "control_49k.yaml" not in source
