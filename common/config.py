"""How a training command gets its configuration: Hydra composes, a configuration class checks.

Every default is written once, in the classes (see `common.schema`). They are the base of what Hydra
composes; the YAML files in conf/ hold which options are chosen and what an option changes. Groups
and overrides are Hydra's (`env=race ppo.clip=0.1 --multirun`). Its own output directories and log
files are switched off, because `common.runs` makes the run directories.
"""

import dataclasses
import functools
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from common.errors import EXIT_USER_ERROR, ConfigError, reported
from common.files import to_plain
from common.help import command_help
from common.overrides import CommandLine, check_command_line, groups, sweep
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
}


def validate(cfg: DictConfig | Mapping[str, Any], schema: type[T]) -> T:
    """The composed `cfg` as an instance of the dataclass `schema`, interpolations resolved.

    Raises `ConfigError` naming the full dotted key: unknown (with the nearest real key), missing,
    of the wrong type, or out of range.
    """
    try:
        config = cfg if isinstance(cfg, DictConfig) else OmegaConf.create(dict(cfg))
        data = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise ConfigError(_message(error)) from None
    return build(schema, data)


def compose(
    config_name: str,
    schema: type[T],
    overrides: Sequence[str] = (),
    config_dir: Path = CONF_DIR,
) -> T:
    """The configuration that the command `config_name` would run with, given `overrides`.

    `--config-dir=<directory>` among them adds a directory with groups and options of your own.
    Raises `ConfigError` as the command does.
    """
    line = check_command_line(overrides, schema, config_dir)
    return validate(_composed(config_name, schema, line.overrides, line.config_dirs), schema)


def hydra_entry(
    config_name: str, schema: type[T], config_dir: Path = CONF_DIR
) -> Callable[[Callable[[T, dict[str, Any]], Any]], Callable[[], None]]:
    """Decorate `fn(config, resolved)` to become a training command's `main()`.

    `config` is the validated instance of `schema`, `resolved` the same as plain data (every
    default included), for `Run.create`. A `UserError` prints `error: ...` and exits with 2.
    All jobs of a `--multirun` are checked before the first one starts.
    """

    def decorate(fn: Callable[[T, dict[str, Any]], Any]) -> Callable[[], None]:
        @functools.wraps(fn)
        def main() -> None:
            with reported():
                if not config_dir.is_dir():
                    raise ConfigError(
                        f"{config_dir}: no configuration found; install with pip install -e ."
                    )
                line = check_command_line(sys.argv[1:], schema, config_dir)
                if line.help:
                    _print_help(fn, config_name, schema, line)
                    return
                if line.multirun:
                    _check_jobs(config_name, schema, line)
                _compose_and_call(fn, config_name, schema, line)

        return main

    return decorate


def register_defaults(config_name: str, schema: type) -> None:
    """Register `<config_name>_defaults` with Hydra: every default of `schema`, as plain data."""
    defaults = {
        name: to_plain(value, finite=False) for name, value in default_values(schema).items()
    }
    ConfigStore.instance().store(f"{config_name}_defaults", node=defaults)


def default_values(schema: type) -> dict[str, Any]:
    """The default of every field of `schema` that has one."""
    values = {}
    for field in dataclasses.fields(schema):
        if field.default_factory is not dataclasses.MISSING:
            values[field.name] = field.default_factory()
        elif field.default is not dataclasses.MISSING:
            values[field.name] = field.default
    return values


def _print_help(fn: Callable, config_name: str, schema: type, line: CommandLine) -> None:
    overrides = next(sweep(line.overrides))  # a sweep shows the help of its first job
    cfg = _composed(config_name, schema, overrides, line.config_dirs, hydra_node=True)
    chosen = OmegaConf.to_container(cfg.hydra.runtime.choices)
    with_defaults = OmegaConf.masked_copy(cfg, list(schema.__dataclass_fields__))
    print(
        command_help(
            fn.__doc__ or config_name,
            schema,
            OmegaConf.to_container(with_defaults, resolve=False),
            groups(line.config_dirs, schema),
            chosen,
        )
    )


def _check_jobs(config_name: str, schema: type, line: CommandLine) -> None:
    """Compose and check every job of a sweep, so that none starts if one of them is wrong."""
    for overrides in sweep(line.overrides):
        try:
            validate(_composed(config_name, schema, overrides, line.config_dirs), schema)
        except ConfigError as error:
            job = " ".join(text.lstrip("+") for text in overrides)
            raise ConfigError(f"{error} (in the job {job}; none was started)") from None


def _composed(
    config_name: str,
    schema: type,
    overrides: Sequence[str],
    config_dirs: Sequence[Path],
    hydra_node: bool = False,
) -> DictConfig:
    register_defaults(config_name, schema)
    job_overrides = [text for text in overrides if not text.startswith("hydra")]
    first, *others = map(str, config_dirs)
    searchpath = ",".join(f"file://{other}" for other in others)
    job_overrides += [f"hydra.searchpath=[{searchpath}]"] * bool(others)
    try:
        with hydra.initialize_config_dir(first, version_base="1.3"):
            return hydra.compose(config_name, job_overrides, return_hydra_config=hydra_node)
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(_message(error)) from None


def _compose_and_call(
    fn: Callable[[T, dict[str, Any]], Any], config_name: str, schema: type[T], line: CommandLine
) -> None:
    program = sys.argv
    called, failed = False, False

    def task(cfg: DictConfig) -> Any:
        nonlocal called, failed
        try:
            with reported():  # in here, because Hydra would print its own report first
                config = validate(cfg, schema)
                called = True
                sys.argv = program  # what the person typed is what a manifest records
                return fn(config, to_plain(config, finite=False))
        except SystemExit as end:
            # If one job of a sweep fails on an error for people, the others still run.
            if end.code != EXIT_USER_ERROR or HydraConfig.get().mode != RunMode.MULTIRUN:
                raise
            failed = True

    register_defaults(config_name, schema)
    chosen = {text.lstrip("+~").partition("=")[0] for text in line.overrides}
    root = "${run_root}" if "run_root" in schema.__dataclass_fields__ else "runs"
    hidden = {"hydra.sweep.dir": f"{root}/sweeps/${{now:%Y-%m-%d_%H-%M-%S}}", **_QUIET_HYDRA}
    quiet = [f"{key}={value}" for key, value in hidden.items() if key not in chosen]
    quiet.append(f"hydra.job.name={config_name}")
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # Hydra raises, and `reported` prints
    # Flags come last: argparse would take an override after `--info` as its value.
    sys.argv = [program[0], *quiet, *line.overrides, *line.flags]
    config_path = str(line.config_dirs[0])
    try:
        hydra.main(version_base="1.3", config_path=config_path, config_name=config_name)(task)()
    except (HydraException, OmegaConfBaseException) as error:
        if called:
            raise  # a bug in fn
        raise ConfigError(_message(error)) from None
    finally:
        sys.argv = program
    if failed:
        sys.exit(EXIT_USER_ERROR)


def _message(error: Exception) -> str:
    """What Hydra or OmegaConf found wrong, in one line."""
    cause = error.__cause__
    texts = [str(error)] + [str(cause)] * isinstance(cause, OmegaConfBaseException)
    lines = [line.strip() for text in texts for line in text.splitlines()]
    useful = [line for line in lines if not line.startswith(("object_type=", "reference_type="))]
    return "; ".join(filter(None, useful)).replace("'++", "'")  # our prefix, not the user's


def resumed(run: Run, typed: T, overrides: Iterable[str], allowed: Sequence[str]) -> T:
    """The configuration of a resumed run: the stored one, with the changes that are allowed.

    Args:
        run: the run directory.
        typed: the configuration of the command line, of the same class.
        overrides: the overrides of the command line. They say which keys the user typed.
        allowed: keys that may change: a top-level key with everything below it, or a dotted key.

    Raises:
        ConfigError: the run's configuration is damaged or incomplete, or another key was typed.
    """
    path, settings = run.path / "config.yaml", run.config
    try:
        stored = build(type(typed), settings)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    absent = _absent(dataclasses.asdict(stored), settings)
    if absent:
        raise ConfigError(f"{path} is incomplete: no {', '.join(absent)}")
    names = {text.lstrip("+").partition("=")[0] for text in overrides}
    foreign = sorted(names - {n for n in names if n in allowed or n.partition(".")[0] in allowed})
    if foreign:
        raise ConfigError(
            f"a resumed run keeps its own configuration: leave out {', '.join(foreign)} "
            f"(allowed: {', '.join(allowed)})"
        )
    for name in names:
        stored = _updated(stored, typed, name.split("."))
    return stored


def _updated(stored: Any, typed: Any, path: Sequence[str]) -> Any:
    """`stored` with the one setting at `path` from `typed`."""
    first, *rest = path
    value = getattr(typed, first)
    if rest:
        value = _updated(getattr(stored, first), value, rest)
    return dataclasses.replace(stored, **{first: value})


def check_growth(key: str, before: Mapping[str, Any], budget: int) -> None:
    """Raise `ConfigError` if a resumed run gets a smaller budget than it had."""
    current = before.get(key, 0)
    if budget < current:
        raise ConfigError(f"{key}={budget}: a resumed run's budget can only grow, it has {current}")


def _absent(expected: Mapping[str, Any], stored: Mapping[str, Any], group: str = "") -> list[str]:
    """Dotted keys of `expected` that `stored` lacks, for example because they were added later."""
    keys = []
    for name, value in expected.items():
        if name not in stored:
            keys.append(f"{group}{name}")
        elif isinstance(value, Mapping):
            keys += _absent(value, stored[name], f"{group}{name}.")
    return keys
