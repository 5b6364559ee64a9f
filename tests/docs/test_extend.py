"""The worked examples of docs/extend.md run as they are printed, each section on its own."""

import os
import re
import subprocess
import sys

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
def test_the_example_runs(title, tmp_path):
    """The blocks of a section are one program. It runs in an empty folder and a process of its own,
    because examples register things."""
    program = tmp_path / "example.py"
    program.write_text("\n\n".join(SECTIONS[title]), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, program], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
