"""Recorded driving: episodes with telemetry in immutable HDF5 shards, read back as windows.

`ShardWriter` takes an `Episode` at a time, `DataSet` reads what is whole on the disk, and
`WindowSampler` says which windows make up the batch of an update. `schema` states the timing: a
row holds an observation and the action and reward that led to it.
"""

import dreamracer  # noqa: F401  refuses foreign packages of the same names
from replay.dataset import DataSet
from replay.sampler import WindowSampler
from replay.schema import Attributes, Episode
from replay.shards import ShardWriter

__all__ = ["Attributes", "DataSet", "Episode", "ShardWriter", "WindowSampler"]
