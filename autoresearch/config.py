"""A campaign as validated data: conf/campaign/<name>.yaml."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from autoresearch.judge.evidence import seeds_needed, seeds_of, share_of
from common.records import check_name

FORBIDDEN = (
    *("seed", "name", "run_root", "resume", "device", "precision", "threads", "processes"),
    *("display", "video", "logger", "experiment", "evaluation", "checkpoint_every", "hydra"),
)
"""Top-level keys that are never searched: seeds, evaluation, and what changes no result."""


FIELD = re.compile(r"\{(\w+)\}")
"""A word in braces, which a command has filled in."""


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


@dataclass(frozen=True)
class Range:
    """What a key may be: a number in [low, high], or one of some choices.

    Attributes:
        low, high: both included.
        log: as likely between 1 and 10 as between 10 and 100.
        integer: whole numbers only.
        choices: instead of all of the above.
    """

    low: float | None = None
    high: float | None = None
    log: bool = False
    integer: bool = False
    choices: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        if self.choices:
            _require(self.low is None and self.high is None, "choices go without low and high")
            _require(len(self.choices) >= 2, "choices are at least two")
            _require(not any("\\" in str(c) for c in self.choices), "choices have no backslash")
            return
        _require(self.low is not None and self.high is not None, "low and high, or choices")
        _require(math.isfinite(self.low) and math.isfinite(self.high), "low and high are finite")
        _require(self.low < self.high, f"low is below high, unlike {self.low} and {self.high}")
        _require(not self.log or self.low > 0, f"low is above 0 where log=true, not {self.low}")

    def accepts(self, value: Any) -> str | None:
        """Why `value` cannot be, or None if it can."""
        if self.choices:
            fits = any(type(one) is type(value) and one == value for one in self.choices)
            told = ", ".join(map(str, self.choices))
            return None if fits else f"{value!r} is not one of {told}"
        if isinstance(value, bool) or not isinstance(value, int | float):
            return f"{value!r} is not a number"
        if not self.low <= value <= self.high:  # neither is NaN
            told = "a number that large" if abs(value) > 1e15 else value
            return f"{told} is not in {self.low:g} to {self.high:g}"
        if self.integer and value != int(value):
            return f"{value} is not a whole number"
        return None


@dataclass(frozen=True)
class Reading:
    """Where a judging command leaves what it measured.

    Attributes:
        file: JSON below the directory `{into}`; `*` stands for a run directory's name.
        rows: key of a list with one mapping per unit (track).
        unit: key of a row that names its unit.
        columns: instead of rows, key of a mapping from measure to a list with a number per unit.
    """

    file: str
    rows: str = ""
    unit: str = "seed"
    columns: str = ""

    def __post_init__(self) -> None:
        _require(bool(self.rows) != bool(self.columns), "rows or columns, one of the two")


@dataclass(frozen=True)
class Commands:
    """How to train and to judge, as arguments of python; words in braces are filled in.

    Attributes:
        train: {root}/{name} is the run directory to make, {seed} and {budget} as they say; the
            candidate's `key=value` follow at the end.
        resume: the same for a run directory {run} that a killed process left.
        sealed: words that follow `judge` where the units are the sealed ones.
        judge: {run} is a trained run directory, {into} where results go, {units} which units
            (1000000-1000031), {first} and {count} the same as numbers.
        reading: what judging leaves.
        ticks: key of the run's result.json that tells what was spent of the budget.
        screens: prefix of the keys of metrics.jsonl's last row that are 1 where a named failure
            shows; what follows the prefix is its name.
        measures: prefixes of keys of that row that a proposer may see.
    """

    train: tuple[str, ...]
    judge: tuple[str, ...]
    reading: Reading
    resume: tuple[str, ...] = ()
    sealed: tuple[str, ...] = ()
    ticks: str = "ticks"
    screens: str = "diagnostics/"
    measures: tuple[str, ...] = ("episode/", "action/", "ppo/", "diagnostics/")

    def __post_init__(self) -> None:
        judged = ("run", "root", "name", "into", "first", "count", "units")
        _fields("train", self.train, ("root", "name", "seed", "budget"), ("name", "seed", "budget"))
        _fields("resume", self.resume, ("run",), ("run",) if self.resume else ())
        _fields("judge", self.judge, judged, ("run",))
        _fields("sealed", self.sealed, judged, ())
        units = set(FIELD.findall(" ".join(self.judge)))
        _require(
            "units" in units or {"first", "count"} <= units,
            "judge is not told which units: it needs {units}, or {first} and {count}",
        )


def _fields(name: str, words: Sequence[str], known: Sequence[str], needed: Sequence[str]) -> None:
    """Check that a command's fields can be filled in and that it has what it needs."""
    _require(bool(words) or not needed, f"{name} is empty")
    found = FIELD.findall(" ".join(words))
    for word in found:
        told = ", ".join(f"{{{one}}}" for one in known)
        _require(word in known, f"{name}: {{{word}}} cannot be filled in; there are {told}")
    for word in needed:
        _require(word in found, f"{name} needs {{{word}}}: without it every run would be alike")


@dataclass(frozen=True)
class Measure:
    """A native quantity of a unit.

    Attributes:
        name: in the judged rows.
        sign: 1 if larger is better, -1 if smaller.
        width: the largest difference between two units that can occur.
        cut: for a measure without bounds: a screen counts a difference larger than `width` as
            `width`. What it proves is then about the mean of differences so cut, to which a rare
            large one adds no more than that; seeds are compared by means of what was measured.
    """

    name: str
    sign: int = 1
    width: float = 1.0
    cut: bool = False

    def __post_init__(self) -> None:
        _require(self.sign in (1, -1), f"sign is 1 or -1, not {self.sign}")
        _require(self.width > 0, f"width is above 0, not {self.width}")

    def counted(self, differences: NDArray[np.float64]) -> NDArray[np.float64]:
        """Differences as a screen counts them."""
        return np.clip(differences, -self.width, self.width) if self.cut else differences


@dataclass(frozen=True)
class Guard:
    """A measure that may not get worse.

    Attributes:
        measure: of which.
        margin: how much worse it may be than the parent's, as a difference; that it is not worse
            than this has to be proved.
        ceiling: and how bad at most, whatever the parent's (a floor where larger is better).
    """

    measure: Measure
    margin: float
    ceiling: float

    def __post_init__(self) -> None:
        _require(self.margin > 0, f"margin is above 0, not {self.margin}")
        _require(
            not self.measure.cut or self.margin < self.measure.width,
            f"a margin of {self.margin} would hold always: differences of {self.measure.name} are "
            f"cut at {self.measure.width}",
        )


@dataclass(frozen=True)
class Gates:
    """When a candidate goes on.

    Attributes:
        primary: what is to improve.
        best: of the primary, what cannot be exceeded, and `headroom` that the base has to leave.
        effect: of the primary, what is worth finding: a screen stops when it is proved smaller.
        guards: what may not get worse.
        smoke: share of the budget that a first run gets.
        halving: shares of the budget of the rungs of successive halving; `eta` times fewer
            candidates pass each. It only decides where to spend.
        rung_units: units on which a rung is judged.
        batch, cap: units judged at a time in the screen, and at most.
        win, stop: evidence (e-value) that ends a screen: that it is better; that it is worthless,
            or harms a guard.
        proof: evidence that a guard holds.
        finalists: candidates per generation that may claim a promotion.
        alpha: error budget of the whole campaign.
        spare_seeds: training seeds more than the fewest that could suffice.
        seed_units: units on which each training seed is judged.
        guard_alpha: level of each guard's test over seeds.
    """

    primary: Measure
    guards: tuple[Guard, ...] = ()
    best: float | None = None
    headroom: float = 0.0
    effect: float = 0.05
    smoke: float = 0.1
    halving: tuple[float, ...] = ()
    eta: int = 2
    rung_units: int = 50
    batch: int = 32
    cap: int = 200
    win: float = 60.0
    stop: float = 20.0
    proof: float = 20.0
    finalists: int = 1
    alpha: float = 0.05
    spare_seeds: int = 0
    seed_units: int = 100
    guard_alpha: float = 0.05

    def claim(self, generation: int) -> tuple[float, int]:
        """What a claim of this generation may spend of alpha, and the training seeds it takes."""
        alpha = share_of(self.alpha, generation, self.finalists)
        return alpha, seeds_of(alpha, self.guard_alpha if self.guards else None, self.spare_seeds)

    def __post_init__(self) -> None:
        _require(0 <= self.smoke <= 1, f"smoke is 0 to 1, not {self.smoke}")
        for share in self.halving:
            _require(0 < share < 1, f"halving has shares between 0 and 1, not {share}")
        _require(list(self.halving) == sorted(set(self.halving)), "halving grows")
        _require(self.eta >= 2, f"eta is at least 2, not {self.eta}")
        limits = {
            "rung_units": 1000,
            "batch": 5000,
            "cap": 5000,
            "finalists": 99,
            "seed_units": 4000,
        }
        for name, most in limits.items():  # of a generation's 10,000 units, none is used twice
            value = getattr(self, name)
            _require(1 <= value <= most, f"{name} is 1 to {most}, not {value}")
        for name in ("win", "stop", "proof"):
            value = getattr(self, name)
            _require(value > 1, f"{name} is above 1, not {value}")
        for name in ("alpha", "guard_alpha"):
            value = getattr(self, name)
            _require(0 < value < 1, f"{name} is between 0 and 1, not {value}")
        _require(self.spare_seeds >= 0, f"spare_seeds is at least 0, not {self.spare_seeds}")
        _require(self.effect >= 0, f"effect is at least 0, not {self.effect}")


@dataclass(frozen=True)
class Final:
    """On what the winner of a campaign that has ended is measured against the base, once.

    Attributes:
        first, units: sealed units: nothing else ever uses them.
        seeds: training seeds, which no generation had.
        level: of the test that the gain holds up.
    """

    first: int = 500
    units: int = 100
    seeds: int = 8
    level: float = 0.05

    def __post_init__(self) -> None:
        _require(self.first >= 0, f"first is at least 0, not {self.first}")
        _require(1 <= self.units <= 5000, f"units is 1 to 5000, not {self.units}")
        _require(0 < self.level < 1, f"level is between 0 and 1, not {self.level}")
        least = seeds_needed(self.level)
        _require(
            least <= self.seeds <= 20,
            f"seeds is {least} (so many can reach a level of {self.level:g}) to 20, "
            f"not {self.seeds}",
        )


@dataclass(frozen=True)
class Budgets:
    """Where a campaign ends, counted over all its processes and resumes; null is no limit.

    Attributes:
        generations: at most.
        ticks: engine ticks (updates, for a world model).
        seconds: of processes, attempts that failed included.
        tokens: of a language model.
        timeout: seconds that one process may take.
        grace: seconds between TERM and KILL.
    """

    generations: int = 4
    ticks: int | None = None
    seconds: float | None = None
    tokens: int | None = None
    timeout: float = 3600.0
    grace: float = 10.0

    def __post_init__(self) -> None:
        _require(1 <= self.generations <= 1000, f"generations is 1 to 1000, not {self.generations}")
        for name in ("ticks", "seconds", "tokens"):
            value = getattr(self, name)
            _require(value is None or value > 0, f"{name} is above 0 or null, not {value}")
        _require(self.timeout > 0, f"timeout is above 0, not {self.timeout}")
        _require(self.grace >= 0, f"grace is at least 0, not {self.grace}")


@dataclass(frozen=True)
class Endpoint:
    """A language model behind an OpenAI-compatible endpoint.

    Attributes:
        url: up to and with /v1.
        model: its name there.
        key: name of the environment variable that holds the key; empty for none.
        timeout: seconds per request.
        temperature, max_tokens: of the request.
    """

    url: str = "http://127.0.0.1:8000/v1"
    model: str = ""
    key: str = "OPENAI_API_KEY"
    timeout: float = 60.0
    temperature: float = 0.7
    max_tokens: int = 600

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            whole = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:
            whole = False
        _require(
            whole and self.url.isascii() and self.url.isprintable() and " " not in self.url,
            f"url is http(s)://host[:port]/..., not {self.url!r}",
        )
        _require(0 < self.timeout <= 3600, f"timeout is above 0 s, not {self.timeout}")
        _require(1 <= self.max_tokens <= 100_000, f"max_tokens is at least 1: {self.max_tokens}")


@dataclass(frozen=True)
class ProposerConfig:
    """Who proposes.

    Attributes:
        kind: random, rules, tpe (extra research), llm, or transcript.
        candidates: per generation.
        tries: refused proposals in a row after which a generation goes on with what it has.
        keys: of random, how many keys a proposal changes at most.
        transcript: of transcript, a JSON-lines file of proposals.
        endpoint: of llm.
    """

    kind: Literal["random", "rules", "tpe", "llm", "transcript"] = "rules"
    candidates: int = 3
    tries: int = 20
    keys: int = 1
    transcript: str = ""
    endpoint: Endpoint = field(default_factory=Endpoint)

    def __post_init__(self) -> None:
        _require(1 <= self.candidates <= 99, f"candidates is 1 to 99, not {self.candidates}")
        _require(1 <= self.tries <= 1000, f"tries is 1 to 1000, not {self.tries}")
        _require(1 <= self.keys <= 10, f"keys is 1 to 10, not {self.keys}")
        _require(
            (self.kind == "transcript") == bool(self.transcript),
            "transcript names a file where kind=transcript, and only there",
        )


@dataclass(frozen=True)
class ExecutorConfig:
    """How processes run.

    Attributes:
        kind: local, processes of this machine; or ray, tasks on a Ray cluster (extra cluster),
            each of whose nodes has this project installed, at the same commit.
        jobs: at a time.
        attempts: of one run that was lost with its process or node.
        address: of ray: host:port of the cluster's head, or auto for the one that this machine
            belongs to; empty starts one on this machine, for as long as the campaign runs.
        cpus, gpus: of ray, what a task takes of its node.
    """

    kind: Literal["local", "ray"] = "local"
    jobs: int = 1
    attempts: int = 3
    address: str = ""
    cpus: float = 1.0
    gpus: float = 0.0

    def __post_init__(self) -> None:
        _require(1 <= self.jobs <= 1024, f"jobs is 1 to 1024, not {self.jobs}")
        _require(1 <= self.attempts <= 100, f"attempts is 1 to 100, not {self.attempts}")
        _require(self.kind == "ray" or not self.address, "address goes with kind=ray")
        _require(0 < self.cpus <= 1024, f"cpus is above 0, not {self.cpus}")
        _require(0 <= self.gpus <= 64, f"gpus is at least 0, not {self.gpus}")


@dataclass(frozen=True)
class CampaignConfig:
    """Everything that decides what a campaign does.

    Attributes:
        name: of its directory below `root`.
        commands: how to train and judge.
        budget: of a full training run, in the trainer's unit.
        space: what may be searched.
        first_unit: the units of generation g are first_unit + 10,000 g and up: tracks that no
            generation shares.
        metrics: of the judged rows, what a hypothesis may predict.
        seed: of proposals and of training seeds.
    """

    name: str
    commands: Commands
    budget: int
    space: dict[str, Range]
    gates: Gates
    final: Final = field(default_factory=Final)
    metrics: tuple[str, ...] = ()
    budgets: Budgets = field(default_factory=Budgets)
    proposer: ProposerConfig = field(default_factory=ProposerConfig)
    executor: ExecutorConfig = field(default_factory=ExecutorConfig)
    first_unit: int = 1_000_000
    seed: int = 0
    root: str = "runs/autoresearch"

    def __post_init__(self) -> None:
        for name, value in _floats(self, ""):
            _require(math.isfinite(value), f"{name} is a finite number, not {value}")
        _require(self.budget >= 1, f"budget is at least 1, not {self.budget}")
        try:
            self.gates.claim(self.budgets.generations)
        except ValueError as error:
            raise ValueError(
                f"budgets.generations={self.budgets.generations} is more than the error budget "
                f"lasts for: {error}"
            ) from None
        check_name(self.name, "a campaign's name")
        _require(
            self.final.first + self.final.units <= self.first_unit,
            f"final has units below first_unit, {self.first_unit}, where the search's begin",
        )
        _require(bool(self.space), "space names at least one key")
        _require(self.first_unit >= 0, f"first_unit is at least 0, not {self.first_unit}")
        _require(0 <= self.seed < 2**31, f"seed is 0 to 2^31 - 1, not {self.seed}")
        for key in self.space:
            _require(key.replace("_", "a").replace(".", "a").isalnum(), f"space: bad key {key!r}")
            _require(key.partition(".")[0] not in FORBIDDEN, f"space: {key} cannot be searched")
            _require(
                not any(f"{key}=" in word for word in self.commands.train),
                f"space: {key} is set by commands.train",
            )
        _require(
            not self.metrics or self.gates.primary.name in self.metrics,
            f"metrics holds the primary, {self.gates.primary.name}",
        )


def _floats(value: Any, name: str) -> Iterator[tuple[str, float]]:
    """Every float of nested settings, by dotted name."""
    if isinstance(value, float):
        yield name, value
    elif dataclasses.is_dataclass(value):
        for one in dataclasses.fields(value):
            yield from _floats(getattr(value, one.name), f"{name}.{one.name}".lstrip("."))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _floats(item, f"{name}.{key}")
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from _floats(item, f"{name}[{index}]")
