"""The training command for PPO; see `--help`."""

from typing import Any

from hydra.core.hydra_config import HydraConfig

from common.cli import finish
from common.config import hydra_entry
from ppo.config import PPOTrainConfig
from ppo.training_run import train


@hydra_entry("train_ppo", PPOTrainConfig)
def main(config: PPOTrainConfig, resolved: dict[str, Any]) -> None:
    """Train a driver with PPO, judge it on tracks it never saw, and film it.

        python train_ppo.py                     preset race, one lap, minutes on 2 cores
        python train_ppo.py seed=2 total_timesteps=2e6 ppo.learning_rate=1e-4
        python train_ppo.py env=carracing reward=native
        python train_ppo.py --multirun seed=1,2,3
        python train_ppo.py resume=runs/ppo/<run>

    Everything is written below runs/. A resumed run goes on as if never interrupted.
    """
    finish(train(config, resolved, HydraConfig.get().overrides.task))


if __name__ == "__main__":
    main()
