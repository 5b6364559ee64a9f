"""How fast windows of recorded driving are read, by the way in which they are stored."""

import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from common import cli
from common.records import write_record
from common.runs import Run, timestamped
from common.schema import config_class
from replay import Attributes, DataSet, Episode, ShardWriter, WindowSampler

DESCRIPTION = """Time random windows from replay, against other layouts and a copy in memory.

    python scripts/bench_replay.py              the whole study
    python scripts/bench_replay.py quick=true   our layout, contiguous HDF5, gzip and the copy

The frames are real ones of a scripted driver. Layouts are read in turns, with the files in the
page cache, and by processor time: what other programs take of the machine does not count. `ours`
is all of `DataSet.windows`: frames, actions, rewards, flags and telemetry; the others read frames
alone. All fill one batch again and again. `wait_share` is the share of a training step that waits
for its batch when nothing is read ahead."""

# Options of h5py, chunks in rows.
LAYOUTS: dict[str, dict[str, Any]] = {
    "HDF5 contiguous": {},
    "HDF5 gzip-1, chunks of 10": {"chunks": 10, "compression": "gzip", "compression_opts": 1},
    "HDF5 gzip-1, chunks of 1": {"chunks": 1, "compression": "gzip", "compression_opts": 1},
    "HDF5 gzip-1, chunks of 5": {"chunks": 5, "compression": "gzip", "compression_opts": 1},
    "HDF5 gzip-1, chunks of 50": {"chunks": 50, "compression": "gzip", "compression_opts": 1},
    "HDF5 gzip-4, chunks of 10": {"chunks": 10, "compression": "gzip", "compression_opts": 4},
    "HDF5 lzf, chunks of 10": {"chunks": 10, "compression": "lzf"},
    "HDF5 uncompressed, chunks of 10": {"chunks": 10},
}
CONTIGUOUS, GZIP = list(LAYOUTS)[:2]
OURS, COPY = "ours", "copy limit (np.memmap)"

Read = Callable[[np.ndarray], Any]


@config_class
class Settings:
    """The settings of the command.

    Attributes:
        quick: four layouts, in under 50 seconds.
        rounds: alternations of the layouts.
        episodes: episodes of 1,000 rows that are read.
        batch: windows per batch.
        length: rows per window.
        training_speed: frames/s of the training that wait_share refers to.
        record: keep as experiments/records/replay_speed.json.
        run_root: where the run directory goes.
    """

    quick: bool = False
    rounds: int = 9
    episodes: int = 4
    batch: int = 16
    length: int = 50
    training_speed: float = 1000.0
    record: bool = False
    run_root: str = "runs"

    def __post_init__(self) -> None:
        cli.check_ranges(
            self,
            rounds=(1, 100),
            episodes=(1, 64),
            batch=(1, 1024),
            length=(1, 1000),
        )
        if self.training_speed <= 0:
            raise ValueError(f"training_speed is above 0, not {self.training_speed}")


def drive(num_episodes: int, rows: int = 1000) -> list[Episode]:
    """Episodes of the scripted driver."""
    from common.telemetry import TELEMETRY
    from envs.racing import EndingConfig, EnvConfig, RacingVectorEnv
    from envs.racing.drivers import CentrelineDriver

    env = RacingVectorEnv(
        num_episodes, EnvConfig(max_ticks=rows), seed=1, endings=EndingConfig(finish=False)
    )
    driver = CentrelineDriver()
    carry = driver.initial(num_episodes)
    frames = np.empty((num_episodes, rows, *env.single_observation_space.shape), np.uint8)
    action = np.zeros((num_episodes, rows, 3), np.float32)
    reward = np.zeros((num_episodes, rows), np.float32)
    telemetry = {name: np.zeros((num_episodes, rows), np.float32) for name in TELEMETRY}
    frames[:, 0], info = env.reset()
    seeds = info["track_seed"]
    for row in range(rows):
        if row > 0:
            observation = driver.spec.gather(info, num_episodes)
            is_first = np.full(num_episodes, row == 1)
            action[:, row], carry = driver.act(carry, observation, is_first)
            frames[:, row], reward[:, row], _, _, info = env.step(action[:, row])
        for name, values in telemetry.items():
            values[:, row] = info[name]
    env.close()
    never = np.zeros(rows, bool)
    return [
        Episode(
            observation=frames[i],
            action=action[i],
            reward=reward[i],
            terminated=never,
            truncated=never,
            telemetry={name: values[i] for name, values in telemetry.items()},
            track_seed=int(seeds[i]),
            direction=0,
            scenario="centreline",
        )
        for i in range(num_episodes)
    ]


def write_ours(root: Path, episodes: list[Episode]) -> DataSet:
    about = Attributes({}, {}, {}, action_repeat=1, policy="CentrelineDriver", code="bench")
    with ShardWriter(root, "bench", "train", about) as writer:
        for episode in episodes:
            writer.add(episode)
    return DataSet(root, "bench", "train")


def write_hdf5(path: Path, episodes: list[Episode], options: dict[str, Any]) -> None:
    import h5py

    frame = episodes[0].observation.shape[1:]
    options = dict(options)
    if "chunks" in options:
        options["chunks"] = (options["chunks"], *frame)
    with h5py.File(path, "w") as file:
        shape = (sum(map(len, episodes)), *frame)
        data = file.create_dataset("observation", shape, np.uint8, **options)
        row = 0
        for episode in episodes:
            data[row : row + len(episode)] = episode.observation
            row += len(episode)


def hdf5_reader(path: Path, batch: np.ndarray) -> Read:
    import h5py

    # Random windows find nothing in the cache of chunks.
    data = h5py.File(path, "r", rdcc_nbytes=0)["observation"]

    def read(starts: np.ndarray) -> None:
        for window, start in zip(batch, starts.tolist(), strict=True):
            data.read_direct(window, np.s_[start : start + len(window)])

    return read


def memmap_reader(path: Path, episodes: list[Episode], batch: np.ndarray) -> Read:
    with open(path, "wb") as file:
        for episode in episodes:
            file.write(episode.observation)
    data = np.memmap(path, np.uint8, "r").reshape(-1, *batch.shape[2:])

    def read(starts: np.ndarray) -> None:
        for window, start in zip(batch, starts.tolist(), strict=True):
            window[:] = data[start : start + len(window)]

    return read


def seconds_of(task: Callable[[], Any]) -> float:
    start = time.process_time()
    task()
    return time.process_time() - start


def compare(settings: Settings, folder: Path) -> dict[str, dict[str, float]]:
    """Speed and size of every layout."""
    episodes = drive(settings.episodes)
    raw = sum(episode.observation.nbytes for episode in episodes)
    rows = sum(map(len, episodes))
    batch = np.empty((settings.batch, settings.length, *episodes[0].observation.shape[1:]), "u1")

    layouts = dict(list(LAYOUTS.items())[:2]) if settings.quick else LAYOUTS
    readers: dict[str, Read] = {}
    results: dict[str, dict[str, float]] = {}
    start = time.process_time()
    ours = write_ours(folder, episodes)
    results[OURS] = {"rows_written_per_second": rows / (time.process_time() - start)}
    results[OURS]["size_ratio"] = raw / sum(info.bytes for info in ours.shards)
    arrays = ours.windows(np.zeros(settings.batch, np.int64), settings.length)
    readers[OURS] = lambda starts: ours.windows(starts, settings.length, out=arrays)
    for i, (name, options) in enumerate(layouts.items()):
        path = folder / f"{i}.h5"
        written = seconds_of(lambda p=path, o=options: write_hdf5(p, episodes, o))
        results[name] = {"rows_written_per_second": rows / written}
        results[name]["size_ratio"] = raw / path.stat().st_size
        readers[name] = hdf5_reader(path, batch)
    readers[COPY] = memmap_reader(folder / "raw", episodes, batch)
    results[COPY] = {"size_ratio": 1.0}

    sampler = WindowSampler(ours.episodes, settings.length, settings.batch, seed=0)
    seconds: dict[str, list[float]] = {name: [] for name in readers}
    for read in readers.values():
        read(sampler.indices(0))
    for update in range(settings.rounds):
        for name, read in readers.items():
            starts = [sampler.indices(k) for k in (2 * update, 2 * update + 1)]
            seconds[name].append(seconds_of(lambda r=read, s=starts: [r(x) for x in s]) / 2)
    step = settings.batch * settings.length / settings.training_speed
    for name, result in results.items():
        median = float(np.median(seconds[name]))
        result["windows_per_second"] = settings.batch / median
        result["wait_share"] = median / (median + step)
    return results


def main() -> None:
    settings = cli.parse(Settings, DESCRIPTION)
    if settings.quick:
        settings = replace(settings, episodes=min(settings.episodes, 2))
    run = Run.create(settings.run_root, timestamped("bench_replay"), asdict(settings), seeds={})
    folder = Path(tempfile.mkdtemp(dir=run.path))
    try:
        layouts = compare(settings, folder)
    finally:
        shutil.rmtree(folder)
    columns = ["windows_per_second", "size_ratio", "rows_written_per_second", "wait_share"]
    cli.table(
        ["layout", "windows/s", "times smaller", "rows written/s", "share of waiting"],
        [[name, *(row.get(column, "") for column in columns)] for name, row in layouts.items()],
    )
    speed = {name: row["windows_per_second"] for name, row in layouts.items()}
    metrics = {
        "ours": speed[OURS],
        "hdf5_contiguous": speed[CONTIGUOUS],
        "hdf5_gzip": speed[GZIP],
        "copy_limit": speed[COPY],
        "wait_share": layouts[OURS]["wait_share"],
        "wait_share_gzip": layouts[GZIP]["wait_share"],
        "gzip_size_ratio": layouts[GZIP]["size_ratio"],
    }
    run.write_json("details.json", layouts)
    if settings.record:
        write_record(
            "replay_speed",
            command=cli.command("scripts/bench_replay.py"),
            settings=asdict(settings),
            metrics=metrics,
            details={"layouts": layouts},
        )
    cli.finish(metrics, run)


if __name__ == "__main__":
    cli.run_main(main)
