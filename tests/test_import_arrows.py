"""Who may use whom: the arrows of the design, read from the source of every module."""

import ast
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import pytest

from dreamracer import PACKAGES

ROOT = Path(__file__).resolve().parents[1]

ARROWS: dict[str, set[str]] = {
    "common": set(),
    "envs": {"common"},
    "replay": {"common"},
    "ppo": {"common", "envs"},
    "rssm": {"common", "replay"},
    "probes": {"common", "envs", "replay", "ppo", "rssm"},
    "experiments": {"common", "envs", "replay", "ppo", "rssm", "probes"},
    # It runs commands as subprocesses and reads their result files: no trainer, no world.
    "autoresearch": {"common"},
}
"""Room to the rooms it may import. What joins two others is wired in entry commands and scripts."""

ENTRY_MODULES = {"scripts", "tests"}

INNER: dict[str, dict[str, set[str]]] = {
    "envs/racing": {
        "sim": set(),
        "pixels": {"sim"},
        "score": {"sim"},
        "reference": {"sim", "pixels", "score"},
        "drivers": {"sim", "pixels"},
        "show": {"sim", "pixels", "score", "reference"},
    },
    "autoresearch": {
        "config": set(),
        "types": {"config"},
        "execute": {"config", "types"},
        "propose": {"config", "types"},
        "judge": {"config", "types"},
        "loop": {"config", "types", "execute", "propose", "judge"},
        "report": {"config", "types", "execute", "propose", "judge", "loop"},
        "commands": {"config", "types", "execute", "propose", "judge", "loop", "report"},
    },
    "rssm": {
        "config": set(),
        "motion": set(),
        "model": {"config"},
        "imagination": {"model"},
        "world_model": {"config", "motion", "model", "imagination"},
        "checkpoint": {"config", "world_model"},
        "data": {"config", "motion"},
        "objective": {"config", "motion", "model", "imagination", "world_model", "data"},
        "validation": {"config", "model", "world_model", "data", "objective"},
        "readout": {"world_model", "data", "objective"},
        "training": {"config", "world_model", "checkpoint", "data", "objective", "validation"},
    },
    "common": {"torch": set(), "rl": {"torch"}},
}
"""Inside a room: folder or module to those beside it that it may import."""

TORCH = {"torch", "lightning", "pytorch_lightning"}
TORCH_IN_COMMON = ("common/torch/", "common/rl/")
TORCH_ROOMS = {"ppo", "rssm", "probes", "experiments"}


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and absolute dotted name of every import in `tree`, at whatever depth."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.lineno, node.module


def at_module_level(tree: ast.Module) -> set[int]:
    """Lines of the imports that run when the module is imported: those outside of functions."""
    lines: set[int] = set()
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            lines.add(node.lineno)
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            pending.extend(ast.iter_child_nodes(node))
    return lines


def violations(root: Path) -> list[str]:
    """Every import below `root` that points against the arrows, as `file:line: why`."""
    found = []
    for room, allowed in ARROWS.items():
        for path in sorted((root / room).rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            top_level = at_module_level(tree)
            relative = path.relative_to(root).as_posix()
            for line, name in imports(tree):
                package = name.partition(".")[0]
                where = f"{relative}:{line}"
                if package in ARROWS.keys() - allowed - {room}:
                    found.append(f"{where}: {room} may not use {package}")
                if package in ENTRY_MODULES or package.startswith("train_"):
                    found.append(f"{where}: {room} may not use entry commands ({package})")
                if package in TORCH and room not in TORCH_ROOMS:
                    lazy = room == "common" and line not in top_level
                    if not lazy and not relative.startswith(TORCH_IN_COMMON):
                        found.append(f"{where}: {room} may not import {package} here")
    for room, folders in INNER.items():
        prefix = room.replace("/", ".") + "."
        for folder, allowed in folders.items():
            module = root / room / f"{folder}.py"
            paths = [module] if module.exists() else sorted((root / room / folder).rglob("*.py"))
            for path in paths:
                tree = ast.parse(path.read_text(encoding="utf-8"))
                for line, name in imports(tree):
                    inner = name.removeprefix(prefix).partition(".")[0]
                    if name.startswith(prefix) and inner in folders.keys() - allowed - {folder}:
                        where = f"{path.relative_to(root).as_posix()}:{line}"
                        found.append(f"{where}: {prefix}{folder} may not use {prefix}{inner}")
    return found


def cycle(arrows: Mapping[str, Collection[str]]) -> list[str]:
    """A way from one of `arrows` back to itself; empty if there is none."""
    done: set[str] = set()

    def visit(node: str, way: list[str]) -> list[str]:
        if node in way:
            return [*way[way.index(node) :], node]
        if node in done:
            return []
        for following in sorted(arrows.get(node, ())):
            if found := visit(following, [*way, node]):
                return found
        done.add(node)
        return []

    return next(filter(None, (visit(node, []) for node in arrows)), [])


def module_arrows(root: Path, room: str) -> dict[str, set[str]]:
    """Every module of a room to the modules of that room that it imports when it is imported."""
    paths = sorted((root / room).rglob("*.py"))
    trees = {
        ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path
        for path in paths
    }
    arrows: dict[str, set[str]] = {}
    for name, path in trees.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        top_level, targets = at_module_level(tree), set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import) and node.lineno in top_level:
                targets |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.lineno in top_level:
                members = {f"{node.module}.{alias.name}" for alias in node.names}
                # `from package import module` needs that module; any other name, the package.
                targets |= (members & trees.keys()) or {node.module}
        arrows[name] = (targets & trees.keys()) - {name}
    return arrows


def test_every_room_has_its_arrows():
    assert ARROWS.keys() == set(PACKAGES)


def test_arrows():
    assert violations(ROOT) == []


@pytest.mark.parametrize("room", INNER)
def test_the_folders_of_a_room_have_an_order(room):
    assert cycle(INNER[room]) == []


def test_autoresearch_has_no_circle_of_modules():
    assert cycle(module_arrows(ROOT, "autoresearch")) == []


def test_a_circle_is_found(tmp_path):
    assert cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    (tmp_path / "room" / "inner").mkdir(parents=True)
    (tmp_path / "room" / "inner" / "__init__.py").write_text("")
    (tmp_path / "room" / "a.py").write_text("from room.inner import b")
    (tmp_path / "room" / "inner" / "b.py").write_text("import room.a")
    assert cycle(module_arrows(tmp_path, "room")) == ["room.a", "room.inner.b", "room.a"]


@pytest.mark.parametrize(
    ("name", "source", "expected"),
    [
        ("envs/a.py", "import ppo.policy", "envs/a.py:1: envs may not use ppo"),
        ("envs/a.py", "def f():\n    import torch", "envs/a.py:2: envs may not import torch here"),
        ("envs/sub/a.py", "from replay import x", "envs/sub/a.py:1: envs may not use replay"),
        ("common/a.py", "from envs import x", "common/a.py:1: common may not use envs"),
        ("common/a.py", "import torch.nn", "common/a.py:1: common may not import torch here"),
        ("rssm/a.py", "import envs", "rssm/a.py:1: rssm may not use envs"),
        ("autoresearch/a.py", "import rssm", "autoresearch/a.py:1: autoresearch may not use rssm"),
        (
            "envs/racing/sim/a.py",
            "import envs.racing.score.terms",
            "envs/racing/sim/a.py:1: envs.racing.sim may not use envs.racing.score",
        ),
        ("ppo/a.py", "import train_ppo", "ppo/a.py:1: ppo may not use entry commands (train_ppo)"),
    ],
)
def test_a_wrong_import_is_found(tmp_path, name, source, expected):
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).write_text(source)
    assert violations(tmp_path) == [expected]


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("common/a.py", "def f():\n    import torch"),
        ("common/torch/a.py", "import torch"),
        ("envs/racing/pixels/a.py", "from envs.racing.sim import track"),
        ("ppo/a.py", "import envs.racing, common.runs, torch\nfrom . import policy"),
        ("rssm/a.py", "from replay.sampler import x"),
    ],
)
def test_right_imports_pass(tmp_path, name, source):
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).write_text(source)
    assert violations(tmp_path) == []


def test_worlds_and_tools_run_without_torch():
    """The arrows in effect: nothing that a worker process imports pulls torch in indirectly."""
    tools = ("cli", "config", "errors", "files", "runs", "schema", "seeding", "statistics")
    drivers = ("common.keyboard", "common.rl.policy", "common.rl.controls", "envs.racing.drivers")
    modules = [*(f"common.{tool}" for tool in tools), "envs.racing", *drivers]
    code = f"import sys, {', '.join(modules)}; print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
