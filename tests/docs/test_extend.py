"""The worked examples of docs/extend.md run as they are printed, each section on its own."""

import re

import pytest

from dreamracer import ROOT

TEXT = (ROOT / "docs" / "extend.md").read_text(encoding="utf-8")
SECTIONS = {
    title: re.findall(r"^```python\n(.*?)^```", body, re.MULTILINE | re.DOTALL)
    for title, body in re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL)
}


def test_every_section_has_an_example():
    assert len(SECTIONS) >= 8
    assert [title for title, blocks in SECTIONS.items() if not blocks] == []


@pytest.mark.parametrize("title", SECTIONS)
def test_the_example_runs(title, tmp_path, monkeypatch):
    """The blocks of a section share their names and run in an empty folder."""
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "example"}
    for block in SECTIONS[title]:
        exec(compile(block, f"docs/extend.md, {title}", "exec"), names)
