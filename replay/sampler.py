"""Which windows make up the batch of an update: a pure function, with nothing to save or restore.

Every row that has a whole window after it is equally likely to be the first one, whatever episode
or shard it lies in. Hence every row is equally likely to be covered, apart from the first and last
length - 1 rows of the whole data set. Windows run from an episode into the next, where `is_first`
marks the start: so episodes of any length, also those shorter than a window, count by their
steps, and the last step of an episode is seen as often as any other.
"""

from collections.abc import Sequence
from copy import copy

import numpy as np
from numpy.typing import ArrayLike, NDArray

from common.errors import UserError
from common.seeding import derive


class WindowSampler:
    """The first rows of the windows of each update.

    With `strata`, a window belongs to the highest stratum among its rows; one of the strata that
    occur is drawn with equal probability, then one of its windows. `shares` tells what this does
    to the distribution.

    Args:
        episodes: `DataSet.episodes`.
        length: rows per window.
        batch: windows per update, over all ranks.
        seed: root seed.
        strata: (rows,) whole numbers from 0 on, such as `corner_strata` makes; None for none.

    Raises:
        UserError: fewer rows than a window has, or numbers that do not fit.
    """

    def __init__(
        self,
        episodes: NDArray[np.void],
        length: int,
        batch: int,
        seed: int,
        strata: NDArray[np.integer] | None = None,
    ) -> None:
        rows = int(episodes["length"].sum())
        if length < 1 or batch < 1:
            raise UserError(f"length and batch are at least 1, not {length} and {batch}")
        if rows < length:
            raise UserError(f"a window has {length} rows, but the whole data set has only {rows}")
        self.length = length
        self.batch = batch
        self._key = derive(seed, "windows")
        self._part = slice(None)
        self._order: NDArray[np.int64] | None = None
        self._sizes = np.array([rows - length + 1])
        if strata is not None:
            if strata.shape != (rows,) or strata.dtype.kind not in "iu" or strata.min() < 0:
                raise UserError(f"strata are ({rows},) whole numbers from 0 on")
            highest = np.lib.stride_tricks.sliding_window_view(strata, length).max(1)
            self._order = np.argsort(highest, kind="stable")
            self._sizes = np.bincount(highest)

    @property
    def shares(self) -> dict[str, NDArray[np.float64]]:
        """Probability of each stratum: "natural" without, "sampled" with stratification."""
        occurs = self._sizes > 0
        return {"natural": self._sizes / self._sizes.sum(), "sampled": occurs / occurs.sum()}

    def for_rank(self, rank: int, world: int) -> "WindowSampler":
        """The sampler of one of `world` processes: together they draw what one alone would."""
        if not 0 <= rank < world or self.batch % world:
            raise UserError(f"a batch of {self.batch} cannot be split for rank {rank} of {world}")
        size = self.batch // world
        part = copy(self)
        part._part = slice(rank * size, (rank + 1) * size)
        return part

    def indices(self, update: int) -> NDArray[np.int64]:
        """First row of each window of update number `update` (from 0 on): (batch,), or its part.

        Depends on the seed, `update` and the data only: an interrupted run goes on with the number
        of its next update.
        """
        # Raw words, as numpy promises to keep those of a bit generator the same for ever; the bias
        # of a remainder of 64 bits is below 1e-12.
        words = np.random.Philox(key=[self._key, update]).random_raw((2, self.batch))
        kinds = np.flatnonzero(self._sizes)
        stratum = kinds[words[0] % len(kinds)]
        place = (words[1] % self._sizes[stratum].astype(np.uint64)).astype(np.int64)
        if self._order is not None:
            place = self._order[np.cumsum(self._sizes)[stratum] - self._sizes[stratum] + place]
        return place[self._part]


def corner_strata(corner_angle: ArrayLike, edges: Sequence[float]) -> NDArray[np.int64]:
    """Stratum of each row by |corner angle| in rad: 0 below the first of `edges`, and so on."""
    if list(edges) != sorted(set(edges)):
        raise UserError(f"edges of strata grow, unlike {list(edges)}")
    return np.digitize(np.abs(corner_angle), edges).astype(np.int64)
