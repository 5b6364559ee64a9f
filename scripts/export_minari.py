"""Export a replay data set to Minari, and check that nothing was lost."""

import math
from copy import deepcopy
from pathlib import Path

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec

import envs.racing  # noqa: F401  (registers the environment)
from common import cli
from common.errors import UserError
from common.runs import check_disk
from common.schema import config_class
from replay import DataSet
from replay.curate import read_episodes
from replay.export import check_id, export_minari, import_minari
from replay.schema import OBSERVATION_SHAPE, Attributes

DESCRIPTION = """Export one split of a data set to Minari, images as they are (no JPEG).

    python scripts/export_minari.py dataset=D4_pilot split=val id=racing/d4-pilot-val-v0
    python -c "import minari; print(minari.load_dataset('racing/d4-pilot-val-v0'))"

The second line needs MINARI_DATASETS_PATH=<out>. Reads everything back and compares it with the
original, value by value. `recover_environment()` of the data set makes the environment that it was
recorded in, after `import envs.racing`. Needs the extra minari."""


@config_class
class Settings:
    """The settings of the command.

    Attributes:
        dataset: which data set.
        split: train, val or probe.
        id: its Minari id; default racing/<name>-<split>-v0.
        root: where the data sets are.
        out: Minari's directory of data sets.
    """

    dataset: str
    split: str = "train"
    id: str = ""
    root: str = "data"
    out: str = "data/minari"


def environment(attributes: Attributes) -> EnvSpec | None:
    """Of one car in the world that a data set was recorded in; None if the data does not say what
    ended its episodes, as data of the first release does not."""
    if not attributes.endings:
        return None
    spec = deepcopy(gymnasium.spec("racing/Race-v0"))
    options = {"num_agents", "threads"}  # of our engine, for many cars at once
    spec.kwargs |= {k: v for k, v in attributes.environment.items() if k not in options}
    spec.kwargs |= {"reward": dict(attributes.reward), "endings": dict(attributes.endings)}
    return spec


def main() -> None:
    settings = cli.parse(Settings, DESCRIPTION)
    name = f"{settings.dataset}-{settings.split}".replace("_", "-").lower()
    dataset_id = settings.id or f"racing/{name}-v0"
    check_id(dataset_id)
    data = DataSet(settings.root, settings.dataset, settings.split)
    # A disk that fills up in the middle takes HDF5 down with it.
    check_disk(Path(settings.out), data.rows * (math.prod(OBSERVATION_SHAPE) + 1000), "a copy")
    spec = environment(data.attributes)
    if spec is None:
        print(f"{data.path} does not record its endings: recover_environment() will not work")
    export_minari(read_episodes(data), data.attributes, dataset_id, settings.out, spec)
    steps = 0
    pairs = zip(read_episodes(data), import_minari(dataset_id, settings.out), strict=True)
    for number, (ours, theirs) in enumerate(pairs):
        same = ours.arrays.keys() == theirs.arrays.keys() and all(
            np.array_equal(array, theirs.arrays[key]) for key, array in ours.arrays.items()
        )
        if not same:
            raise UserError(f"episode {number} of {dataset_id} is not what was exported")
        steps += len(ours) - 1
    print(f"{dataset_id}: read back and equal to {data.path}")
    cli.finish({"episodes": len(data.episodes), "steps": steps, "id": dataset_id})


if __name__ == "__main__":
    cli.run_main(main)
