"""Checks the arguments of a training command before Hydra uses them.

Hydra would accept a misspelt key that is added with `+`, and a directory that does not exist. It
would also start the first job of a sweep whose second job is wrong. All of that is refused here,
and the error names the nearest real name.
"""

import argparse
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, Override, QuotedString
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from common.errors import ConfigError
from common.keys import type_at, unknown_choice

INFO = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")


@dataclass(frozen=True)
class CommandLine:
    """A checked command line.

    Attributes:
        overrides: `name=value` and `group=option`. A key becomes `++key=value`, which works
            whether or not a YAML file names it.
        flags: flags of Hydra, such as `--multirun` and `--cfg job`.
        help: whether to print the help only.
        multirun: whether to run every combination of comma-separated values.
        config_dirs: directories with groups and options.
    """

    overrides: list[str]
    flags: list[str]
    help: bool
    multirun: bool
    config_dirs: tuple[Path, ...]


def check_command_line(argv: Sequence[str], schema: type, config_dir: Path) -> CommandLine:
    """Check the words after the program's name.

    Raises `ConfigError` for a flag that does not exist, a missing `--config-dir`, a key that
    `schema` lacks (with any prefix), the removal (`~`) of a key or group, and a group option that
    has no file.
    """
    parser = _Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("--help", "-h", action="store_true")
    parser.add_argument("--multirun", "-m", action="store_true")
    parser.add_argument("--cfg", "-c", choices=["job", "hydra", "all"])
    parser.add_argument("--resolve", action="store_true")
    parser.add_argument("--package", "-p")
    parser.add_argument("--info", "-i", nargs="?", const="all", choices=INFO)
    parser.add_argument("--config-dir", "-cd")
    parser.add_argument("overrides", nargs="*")
    arguments = parser.parse_intermixed_args(list(argv))
    directories = [config_dir]
    if arguments.config_dir is not None:
        directories.append(Path(arguments.config_dir).absolute())
        if not directories[-1].is_dir():
            raise ConfigError(f"--config-dir {arguments.config_dir}: no such directory")
    flags = ["--multirun"] if arguments.multirun else []
    flags += ["--resolve"] if arguments.resolve else []
    for name in ("cfg", "package", "info"):
        value = getattr(arguments, name)
        flags += [f"--{name}", value] if value is not None else []
    flags += ["--config-dir", str(directories[-1])] if arguments.config_dir is not None else []
    return CommandLine(
        [_checked(text, schema, directories) for text in arguments.overrides],
        flags,
        arguments.help,
        arguments.multirun,
        tuple(directories),
    )


def sweep(overrides: Iterable[str]) -> Iterator[list[str]]:
    """The overrides of each job of a sweep: every combination of comma-separated values."""
    choices = []
    for override in OverridesParser.create().parse_overrides(list(overrides)):
        if override.is_sweep_override():
            key = override.get_key_element()
            choices.append([f"{key}={value}" for value in override.sweep_string_iterator()])
        else:
            choices.append([override.input_line])
    return map(list, itertools.product(*choices))


def group_options(group: str, directories: Sequence[Path], schema: type) -> list[str]:
    """The options of a group that fit this command, because conf/ serves several commands."""
    return sorted(
        file.relative_to(directory / group).with_suffix("").as_posix()
        for directory in directories
        for file in (directory / group).rglob("*.yaml")
        if _fits(file, group, schema)
    )


def groups(directories: Sequence[Path], schema: type) -> dict[str, list[str]]:
    """Every group that fits this command, with its options."""
    names = {
        file.parent.relative_to(directory).as_posix()
        for directory in directories
        for file in directory.rglob("*.yaml")
    }
    options = {name: group_options(name, directories, schema) for name in sorted(names - {"."})}
    return {name: available for name, available in options.items() if available}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        flags = "--help, --multirun, --cfg job, --resolve, --info, --config-dir"
        raise ConfigError(f"{message}; settings are name=value, flags are {flags}")


def _checked(text: str, schema: type, directories: Sequence[Path]) -> str:
    try:
        override = OverridesParser.create().parse_override(text)
    except HydraException as error:
        name, _, value = text.partition("=")
        quotes = (
            ""
            if value.isascii()
            else f"; put letters such as these in quotes: \"{name}='{value}'\""
        )
        raise ConfigError(f"cannot read '{text}' as name=value: {error}{quotes}") from None
    key = override.key_or_group
    if not key:
        raise ConfigError(f"'{text}': write name=value (--help lists the names)")
    if key.partition(".")[0].partition("/")[0] == "hydra":
        return text
    value = None if override.is_delete() else override.value()
    options = group_options(key, directories, schema)
    if options and override.is_delete():
        raise ConfigError(
            f"'{text}': a group cannot be removed; choose {key}= one of {', '.join(options)}"
        )
    if options and not isinstance(value, dict):
        _check_options(override, options)
        return text
    if "/" in key:
        known = ", ".join(groups(directories, schema))
        raise ConfigError(f"unknown configuration group '{key}'; groups: {known}")
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


def _fits(file: Path, group: str, schema: type) -> bool:
    """Whether an option file sets only keys that the command's configuration has."""
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
