"""The training command for the world model; see `--help`."""

from typing import Any

from hydra.core.hydra_config import HydraConfig

from common.cli import finish
from common.config import hydra_entry
from rssm.training_run import WorldModelTrainConfig, train


@hydra_entry("train_world_model", WorldModelTrainConfig)
def main(config: WorldModelTrainConfig, resolved: dict[str, Any]) -> None:
    """Train an RSSM with telemetry heads on recorded driving.

        python train_world_model.py data.dataset=D4_main
        python train_world_model.py experiment=P5
        python train_world_model.py rssm=s updates=5000 heads.regression=twohot
        python train_world_model.py resume=runs/rssm/<run>

    The data sets are made by `python scripts/collect_replay.py`. Everything is written below
    runs/. A resumed run goes on as if never interrupted.
    """
    finish(train(config, resolved, HydraConfig.get().overrides.task))


if __name__ == "__main__":
    main()
