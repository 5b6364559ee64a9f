"""requirements.lock pins all that pyproject.toml asks for, and nothing that ties it to a place."""

import re
import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
LINES = [
    line
    for line in (ROOT / "requirements.lock").read_text().splitlines()
    if line and not line.startswith("#")
]
LOCKED = {canonicalize_name(pin.name): pin for pin in (Requirement(line.strip()) for line in LINES)}
# Packages of CUDA builds come with the torch that the user chooses.
CUDA = re.compile(r"nvidia-|cuda-|triton")


def declared() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    names = ("parity", "play", "bench", "minari", "research", "cluster", "notebook", "dev")
    texts = [*project["dependencies"], *(text for name in names for text in extras[name])]
    return [Requirement(text) for text in texts]


def test_pins_are_plain_versions():
    for line in LINES:
        assert re.fullmatch(r'[a-z0-9-]+==[0-9][0-9a-z.]*(; python_version < "[0-9.]+")?', line)
    assert sorted(LINES, key=lambda line: line.partition("=")[0]) == LINES
    assert str(LOCKED["torch"].specifier) == "==2.13.0"


def test_pins_satisfy_what_is_declared_down_to_the_last_dependency():
    pending, seen = declared(), set()
    while pending:
        requirement = pending.pop()
        name = canonicalize_name(requirement.name)
        if CUDA.match(name):
            continue
        assert name in LOCKED, f"{requirement} is not pinned"
        (pin,) = LOCKED[name].specifier
        assert requirement.specifier.contains(pin.version, prereleases=True), str(requirement)
        for extra in ("", *sorted(requirement.extras)):
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            needs = map(Requirement, metadata.requires(name) or [])
            pending += [
                need for need in needs if not need.marker or need.marker.evaluate({"extra": extra})
            ]
    unused = LOCKED.keys() - {name for name, _ in seen}
    assert not unused, f"pinned, but nothing asks for them: {sorted(unused)}"
