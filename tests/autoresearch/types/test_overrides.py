"""Overrides in canonical form, and as words of a command."""

from hydra.core.override_parser.overrides_parser import OverridesParser

from autoresearch.types.overrides import as_arguments, combined, digest, rounded, strays
from tests.autoresearch.toys import BASE


def test_equal_configurations_have_one_digest():
    assert combined({"skill": 0.6}, {"steps": 8.0}, BASE) == {"skill": 0.6}
    assert combined({"skill": 0.6}, {"skill": 0.4}, BASE) == {}
    assert digest({"a": 8, "b": 1}) == digest({"b": 1.0, "a": 8.0}) != digest({"a": 8, "b": True})
    assert rounded({"a": 0.00012345678, "b": 3, "c": "x"}) == {"a": 0.0001235, "b": 3, "c": "x"}


def test_a_run_that_is_not_what_was_proposed_is_found():
    assert strays(BASE, BASE | {"skill": 0.5}, {"skill": 0.5}) == []
    assert strays(BASE, BASE | {"skill": 0.4}, {"skill": 0.5}) == [
        "skill is 0.4, not the proposed 0.5"
    ]
    assert strays(BASE, BASE | {"skill": 0.5, "grass": 0.1}, {"skill": 0.5}) == [
        "grass is 0.1 instead of 0.0, which nobody proposed"
    ]
    assert strays(BASE, BASE | {"extra": 1}, {}) == [
        "extra is 1 instead of None, which nobody proposed"
    ]


def test_arguments_say_to_hydra_what_was_meant():
    values = {"a": 1e-05, "b": -2.5, "c": 8, "d": True, "e": "it's a 'word', [1]", "f": "null"}
    parser = OverridesParser.create()
    for key, text in zip(values, as_arguments(values), strict=True):
        override = parser.parse_override(text)
        value = override.value()
        assert getattr(value, "text", value) == values[key], text
