"""One root seed for all randomness, and the rule for which track seeds may be used for what.

Every generator is seeded by `derive(root, name, ...)`, so components are independent. A
new component does not change the others, and the order of calls does not matter. Track seeds are
split once for the whole project; training may only see the training range.
"""

import hashlib
import random
import re
from collections import Counter
from collections.abc import Iterable

import numpy as np

from common.errors import UserError

SPLITS: dict[str, tuple[int, int]] = {
    "test": (0, 99),
    "probe": (100, 499),
    "sealed": (500, 999),
    "validation": (1_000, 1_999),
    "reserved": (2_000, 9_999),
    "train": (10_000, 999_999),
    "fresh": (1_000_000, 2**31 - 1),
}
"""First and last track seed of each split (both included)."""

MAX_SEEDS = 100_000

_ITEM = re.compile(r"([0-9]{1,10})(?:-([0-9]{1,10}))?")


def derive(root: int, *names: str | int) -> int:
    """A 64-bit seed for the component called `names` under `root`; the same on every machine.

    The first 8 bytes of SHA-256 over an unambiguous encoding: `("a", "b")`, `("ab",)`, `("1",)`
    and `(1,)` all differ.
    """
    digest = hashlib.sha256(_encoded(root))
    for name in names:
        digest.update(_encoded(name))
    return int.from_bytes(digest.digest()[:8], "little")


def seed_everything(root: int) -> None:
    """Seed the global generators of python, numpy and torch (all devices) from `root`.

    This is for libraries that use global state. Our own code uses separate generators. Torch may be
    missing, because the simulator runs without it.
    """
    random.seed(derive(root, "python"))
    np.random.seed(derive(root, "numpy") % 2**32)  # the legacy generator takes 32 bits
    try:
        import torch
    except ModuleNotFoundError:
        return
    torch.manual_seed(derive(root, "torch"))


def split_of(seed: int) -> str:
    """The name of the split of a track seed; `UserError` outside of all splits."""
    for name, (first, last) in SPLITS.items():
        if first <= seed <= last:
            return name
    raise UserError(f"track seed {seed} is outside 0-{SPLITS['fresh'][1]}")


def whole_seed(seed: object) -> int:
    """`seed` as an int; `UserError` unless it is a whole number from 0 on, however large."""
    whole = isinstance(seed, int | np.integer) and not isinstance(seed, bool)
    if not whole or seed < 0:
        raise UserError(f"a seed is a whole number from 0 on, not {seed!r}")
    return int(seed)


def check_split(split: str | None) -> None:
    """Raise `UserError` unless tracks may be drawn from `split`; None means no restriction."""
    if split is None:
        return
    if split not in SPLITS:
        raise UserError(f"split is one of {', '.join(SPLITS)}, not {split!r}")
    refuse_sealed(SPLITS[split])


def check_track_seed(seed: object, split: str | None) -> int:
    """`seed` as an int, if an environment of this `split` may drive the track.

    Every way to name a track is checked here. None allows every whole number from 0 on, as
    CarRacing-v3 does.

    Raises:
        UserError: not a whole number, or a seed of another split.
    """
    number = whole_seed(seed)
    if split is None:
        return number
    first, last = SPLITS[split]
    if not first <= number <= last:
        use = "training uses" if split == "train" else f"the {split} split is"
        may = "may not be trained on" if split == "train" else f"not to {split}"
        raise UserError(
            f"track seed {number} belongs to the {split_of(number)} split and {may}; "
            f"{use} {first}-{last}"
        )
    return number


def refuse_sealed(seeds: Iterable[int]) -> None:
    """Raise `UserError` for a sealed track: these are used once, for a final report."""
    first, last = SPLITS["sealed"]
    for seed in seeds:
        if first <= seed <= last:
            raise UserError(
                f"track seed {seed} is sealed: {first}-{last} are opened once, for a final report"
            )


def parse_seeds(text: str) -> list[int]:
    """Track seeds from text like `"0-99"` or `"3,7,10-12"` (ends included), in the order given.

    `UserError` for anything else, for a seed named twice (it would count twice in a mean), for one
    outside all splits, and for more than 100,000 seeds.
    """
    seeds: list[int] = []
    for item in str(text).split(","):
        match = _ITEM.fullmatch(item.strip())
        if match is None:
            raise UserError(
                f"seeds={text}: {item.strip()!r} is no seed or range; write for example 0-99 or "
                "3,7,10-12"
            )
        first = int(match[1])
        last = int(match[2] or first)
        if last < first:
            raise UserError(f"seeds={text}: the range {item.strip()} runs backwards")
        split_of(last)
        if len(seeds) + last - first >= MAX_SEEDS:
            raise UserError(f"seeds={text}: more than {MAX_SEEDS:,} seeds")
        seeds.extend(range(first, last + 1))
    if len(set(seeds)) < len(seeds):
        repeated = Counter(seeds).most_common(1)[0][0]
        raise UserError(f"seeds={text}: seed {repeated} is named twice")
    return seeds


def _encoded(part: str | int) -> bytes:
    # In Python a bool is an int, but derive(0, True) is a mistake.
    if isinstance(part, bool) or not isinstance(part, str | int | np.integer):
        raise TypeError(f"seeds derive from int and str, not {type(part).__name__}: {part!r}")
    kind = "s" if isinstance(part, str) else "i"
    data = str(part).encode()
    return f"{kind}{len(data)}:".encode() + data
