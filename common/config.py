"""Hydra composes, dataclasses check: the way every training command gets its configuration.

Hydra's groups and overrides stay as users know them (`env=race ppo.clip=0.1 --multirun`). What it
lets pass is refused here: a misspelt key, also when added with `+`, an unknown group option, a
value of the wrong type or out of range. Its own output directories and log files are switched off,
because `common.runs` owns run directories.
"""

import dataclasses
import functools
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import hydra
import yaml
from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, Override, QuotedString
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from common.cli import describe
from common.errors import EXIT_USER_ERROR, ConfigError, reported
from common.files import to_plain
from common.keys import type_at, unknown_choice
from common.runs import Run
from common.schema import build

T = TypeVar("T")

CONF_DIR = Path(__file__).resolve().parents[1] / "conf"
"""The configuration groups beside the packages of a source checkout or an editable install."""

# Hydra's side effects that common.runs replaces; a user's own hydra.* override still wins.
_QUIET_HYDRA = {
    "hydra.output_subdir": "null",
    "hydra.run.dir": ".",
    "hydra.sweep.subdir": ".",
    "hydra.job.chdir": "false",
    "hydra/job_logging": "none",
    "hydra/hydra_logging": "none",
    # Its list of groups and options is of all commands; ours is printed before.
    "hydra.help.template": "'== Config ==\n$CONFIG\n${hydra.help.footer}'",
}


def validate(cfg: DictConfig | Mapping[str, Any], schema: type[T]) -> T:
    """The composed `cfg` as an instance of the dataclass `schema`, interpolations resolved.

    Raises `ConfigError` naming the full dotted key: unknown (with the nearest real key), missing,
    of the wrong type, or out of the range that a dataclass's `__post_init__` checks.
    """
    try:
        config = cfg if isinstance(cfg, DictConfig) else OmegaConf.create(dict(cfg))
        data = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise ConfigError(str(error)) from None
    return build(schema, data)


def check_overrides(
    argv: Sequence[str], schema: type, config_dir: Path = CONF_DIR
) -> tuple[list[str], list[str]]:
    """Check a command line (without the program) before Hydra composes anything from it.

    Returns the overrides and the flags to hand to Hydra. An override of a key that `schema` has
    comes back as `++key=value`, so that it works whether or not a YAML file spells the key out.
    Raises `ConfigError` for a key that `schema` lacks, however it is prefixed, for the removal
    (`~`) of a key or group, and for a group option that has no file.
    """
    parser = get_args_parser()
    arguments = parser.parse_intermixed_args(list(argv))
    if arguments.experimental_rerun is not None:
        raise ConfigError("--experimental-rerun unpickles a file, which could run anything in it")
    directories = [Path(arguments.config_path or config_dir)]
    if arguments.config_dir is not None:
        directories.append(Path(arguments.config_dir))
    overrides = [_checked(text, schema, directories) for text in arguments.overrides]
    flags = list(argv)
    for text in arguments.overrides:
        flags.remove(text)
    return overrides, flags


def hydra_entry(
    config_name: str, schema: type[T], config_dir: Path = CONF_DIR
) -> Callable[[Callable[[T, dict[str, Any]], Any]], Callable[[], None]]:
    """Decorate `fn(config, resolved)` to become a training command's `main()`.

    `config` is the validated instance of `schema`, `resolved` the same as plain data (every
    default included), for `Run.create`. Errors for people end with `error: ...` and exit code 2.
    """

    def decorate(fn: Callable[[T, dict[str, Any]], Any]) -> Callable[[], None]:
        @functools.wraps(fn)
        def main() -> None:
            with reported():
                _compose_and_call(fn, config_name, schema, config_dir, sys.argv[1:])

        return main

    return decorate


def _compose_and_call(
    fn: Callable[[T, dict[str, Any]], Any],
    config_name: str,
    schema: type[T],
    config_dir: Path,
    argv: Sequence[str],
) -> None:
    overrides, flags = check_overrides(argv, schema, config_dir)
    program = sys.argv
    called, failed = False, False

    def task(cfg: DictConfig) -> Any:
        nonlocal called, failed
        try:
            with reported():  # inside, or Hydra prints its own report first
                config = validate(cfg, schema)
                called = True
                sys.argv = program  # what the person typed is what a manifest records
                return fn(config, to_plain(config, finite=False))
        except SystemExit as end:
            # One job of a sweep that cannot be done is no reason to leave out the others.
            if end.code != EXIT_USER_ERROR or HydraConfig.get().mode != RunMode.MULTIRUN:
                raise
            failed = True

    if not config_dir.is_dir():
        raise ConfigError(f"{config_dir}: no configuration found; install with pip install -e .")
    if {"--help", "-h"} & set(flags):
        about = inspect.cleandoc(fn.__doc__ or config_name)
        print(
            about,
            describe(schema, defaults=False),
            _described_groups([config_dir], schema),
            sep="\n\n",
        )
    given = {text.lstrip("+~").partition("=")[0] for text in overrides}
    root = "${run_root}" if "run_root" in schema.__dataclass_fields__ else "runs"
    hidden = {"hydra.sweep.dir": f"{root}/sweeps/${{now:%Y-%m-%d_%H-%M-%S}}", **_QUIET_HYDRA}
    quiet = [f"{key}={value}" for key, value in hidden.items() if key not in given]
    quiet.append(f"hydra.job.name={config_name}")
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # raise, so that we do the reporting
    # Flags last: argparse would take an override after `--info` for its value.
    sys.argv = [program[0], *quiet, *overrides, *flags]
    try:
        hydra.main(version_base="1.3", config_path=str(config_dir), config_name=config_name)(task)()
    except (HydraException, OmegaConfBaseException) as error:
        if called:
            raise  # a bug in fn
        raise ConfigError(_message(error)) from None
    finally:
        sys.argv = program
    if failed:
        sys.exit(EXIT_USER_ERROR)


def _checked(text: str, schema: type, directories: Sequence[Path]) -> str:
    try:
        override = OverridesParser.create().parse_override(text)
    except HydraException as error:
        raise ConfigError(f"cannot read '{text}' as name=value: {error}") from None
    key = override.key_or_group
    if not key:
        raise ConfigError(f"'{text}': write name=value (--help lists the names)")
    if key.partition(".")[0].partition("/")[0] == "hydra":
        return text
    value = None if override.is_delete() else override.value()
    options = _group_options(key, directories, schema)
    if options and override.is_delete():
        raise ConfigError(
            f"'{text}': a group cannot be removed; choose {key}= one of {', '.join(options)}"
        )
    if options and not isinstance(value, dict):
        _check_options(override, options)
        return text
    if "/" in key:
        groups = ", ".join(_groups(directories, schema))
        raise ConfigError(f"unknown configuration group '{key}'; groups: {groups}")
    _check_key(schema, key, value)
    if override.is_delete():
        raise ConfigError(f"'{text}': a key cannot be removed; set it with {key}=value")
    return "++" + text.lstrip("+")


def _check_key(schema: type, key: str, value: Any) -> None:
    type_at(schema, key)
    if isinstance(value, dict):
        for name, member in value.items():
            _check_key(schema, f"{key}.{name}", member)


def _check_options(override: Override, options: Sequence[str]) -> None:
    value = override.value()
    chosen = value.list if isinstance(value, ChoiceSweep) else value
    for option in chosen if isinstance(chosen, list) else [chosen]:
        option = option.text if isinstance(option, QuotedString) else option
        if isinstance(option, str) and option.removesuffix(".yaml") not in options:
            raise unknown_choice(override.key_or_group, option, options)


def _group_options(group: str, directories: Sequence[Path], schema: type) -> list[str]:
    """Options of a group that this command can take: conf/ serves several commands."""
    return sorted(
        file.relative_to(directory / group).with_suffix("").as_posix()
        for directory in directories
        for file in (directory / group).rglob("*.yaml")
        if _fits(file, group, schema)
    )


def _fits(file: Path, group: str, schema: type) -> bool:
    """Whether an option sets nothing but what the command's configuration has."""
    text = file.read_text(encoding="utf-8")
    declared = re.search(r"^#\s*@package\s+(\S+)", text, re.MULTILINE)
    package = declared.group(1) if declared else group
    if package == "_global_":
        try:
            keys = set(OmegaConf.create(text)) - {"defaults"}
        except (OmegaConfBaseException, yaml.YAMLError):
            return True  # Hydra says what is wrong with it
    else:
        keys = {re.split(r"[./]", package)[0]}
    return keys <= set(schema.__dataclass_fields__)


def _groups(directories: Sequence[Path], schema: type) -> list[str]:
    found = {
        file.parent.relative_to(directory).as_posix()
        for directory in directories
        for file in directory.rglob("*.yaml")
    }
    return sorted(group for group in found - {"."} if _group_options(group, directories, schema))


def _described_groups(directories: Sequence[Path], schema: type) -> str:
    lines = ["Groups (group=option):"]
    for group in _groups(directories, schema):
        lines.append(f"  {group}: {', '.join(_group_options(group, directories, schema))}")
    return "\n".join(lines)


def _message(error: Exception) -> str:
    cause = error.__cause__
    detail = f"\n{cause}" if isinstance(cause, OmegaConfBaseException) else ""
    return f"{error}{detail}".replace("'++", "'")  # our prefix, not the user's


def resumed(run: Run, given: T, overrides: Iterable[str], allowed: Sequence[str]) -> T:
    """The configuration that a run is resumed with: its own, with what may change from `given`.

    Args:
        run: the run directory.
        given: the command line's configuration, of the same dataclass.
        overrides: the command line's overrides; they tell what was really given.
        allowed: top-level keys that may change.

    Raises:
        ConfigError: the run's configuration is damaged or incomplete, or another key was given.
    """
    path, settings = run.path / "config.yaml", run.config
    try:
        stored = build(type(given), settings)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    absent = _absent(dataclasses.asdict(stored), settings)
    if absent:
        raise ConfigError(f"{path} is incomplete: no {', '.join(absent)}")
    names = {text.lstrip("+").partition("=")[0] for text in overrides}
    foreign = sorted(name for name in names if name.partition(".")[0] not in allowed)
    if foreign:
        raise ConfigError(
            f"a resumed run keeps its own configuration: leave out {', '.join(foreign)} "
            f"(allowed: {', '.join(allowed)})"
        )
    for name in names:
        stored = _taken(stored, given, name.split("."))
    return stored


def _taken(stored: Any, given: Any, path: Sequence[str]) -> Any:
    """`stored` with the one setting at `path` from `given`."""
    first, *rest = path
    value = getattr(given, first)
    if rest:
        value = _taken(getattr(stored, first), value, rest)
    return dataclasses.replace(stored, **{first: value})


def check_growth(key: str, before: Mapping[str, Any], wanted: int) -> None:
    """Raise `ConfigError` if a resumed run is given less of a budget than it had."""
    had = before.get(key, 0)
    if wanted < had:
        raise ConfigError(f"{key}={wanted}: a resumed run's budget can only grow, it has {had}")


def _absent(expected: Mapping[str, Any], found: Mapping[str, Any], group: str = "") -> list[str]:
    """Dotted keys of `expected` that `found` lacks: a default may have changed since it began."""
    keys = []
    for name, value in expected.items():
        if name not in found:
            keys.append(f"{group}{name}")
        elif isinstance(value, Mapping):
            keys += _absent(value, found[name], f"{group}{name}.")
    return keys
