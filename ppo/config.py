"""The settings of `train_ppo.py` and their defaults; a file in conf/ holds what an option changes.

Sources of defaults: [S] Schulman et al. 2017, [A] Andrychowicz et al. 2021 (what matters in
on-policy RL), [H] Huang et al. 2022 (37 implementation details). Unmarked ones are measured on two
cores.
"""

from dataclasses import field
from typing import Annotated, Literal

from pydantic import Field

from common.errors import UserError
from common.mirror import LoggerConfig
from common.schema import config_class
from common.seeding import SPLITS, parse_seeds, split_of
from envs.racing import EndingConfig, EnvConfig, RewardConfig

ADAPTIVE_LIMITS = 1e-5, 1e-2
"""Lowest and highest learning rate of lr_schedule=adaptive."""
VALIDATION_TRACKS = SPLITS["validation"][1] - SPLITS["validation"][0] + 1

Layers = Annotated[tuple[Annotated[int, Field(ge=1, le=4096)], ...], Field(max_length=16)]
Count = Annotated[int, Field(ge=1, le=10**6)]
Share = Annotated[float, Field(ge=0, le=1)]
Weight = Annotated[float, Field(ge=0, le=1e6)]


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


@config_class
class PolicyConfig:
    """The policy and value network.

    Attributes:
        channels, kernels, strides: one entry per convolution.
        hidden: widths of the hidden layers, of the policy's MLP and of the value's alike.
        heads: separate MLPs for policy and value after the convolutions, or one shared MLP with a
            linear head for each.
        activation: after every layer but the last.
        squash: tanh bends the Gaussian's sample into the action's bounds and its density with it;
            clip cuts it off there and keeps the density of the uncut sample.
        log_std_init: of u, the sample before squashing; one learned number per control.
        log_std_min, log_std_max: limits that no update can leave; above 2, tanh saturates.
        log_std_final: upper limit that is approached linearly; null keeps log_std_max. A policy
            that learned with much noise drives worse, not better, without it: the noise has to fade
            while it can still adapt.
        log_std_fade: share of the budget after which log_std_final is reached.
        pedals: one is a signed pedal, gas above zero and its square the brake below, so that no
            noise presses both and a driver learns to brake; two has gas and brake apart,
            CarRacing's own action space.
        initial_action: steer, gas and brake of the untrained deterministic policy (one pedal: gas
            less brake). Slow enough to stay on the road at first, and to see what steering does;
            half gas and half brake, the middle of their range, would stand still and never see a
            reward.
    """

    channels: Layers = (16, 32, 32)
    kernels: Layers = (8, 4, 3)
    strides: Layers = (4, 2, 2)
    hidden: Layers = (256,)
    heads: Literal["separate", "shared"] = "separate"
    activation: Literal["relu", "elu", "silu", "tanh"] = "relu"
    squash: Literal["tanh", "clip"] = "tanh"
    log_std_init: float = -1.0
    log_std_min: Annotated[float, Field(ge=-20)] = -4.0
    log_std_max: Annotated[float, Field(le=2)] = -1.0
    log_std_final: float | None = -2.5
    log_std_fade: Annotated[float, Field(gt=0, le=1)] = 0.7
    pedals: Literal["one", "two"] = "one"
    initial_action: tuple[float, float, float] = (0.0, 0.12, 0.02)

    def __post_init__(self) -> None:
        _require(
            len(self.channels) == len(self.kernels) == len(self.strides) > 0,
            "channels, kernels and strides need one entry per convolution, the same number each",
        )
        _require(
            self.log_std_min <= self.log_std_init <= self.log_std_max,
            "log_std_init lies between log_std_min and log_std_max",
        )
        _require(
            self.log_std_final is None
            or self.log_std_min <= self.log_std_final <= self.log_std_max,
            "log_std_final lies between log_std_min and log_std_max",
        )
        steer, gas, brake = self.initial_action
        _require(
            -1 < steer < 1 and 0 < gas < 1 and 0 < brake < 1,
            "initial_action lies strictly inside [-1, 1] x [0, 1] x [0, 1], not "
            f"{[steer, gas, brake]}",
        )

    def map_size(self, size: int) -> int:
        """Height and width of the last convolution's output for pictures of size x size pixels.

        Raises `ValueError` where a kernel is larger than what it meets.
        """
        side = size
        for kernel, stride in zip(self.kernels, self.strides, strict=True):
            _require(
                kernel <= side,
                f"kernels={list(self.kernels)} and strides={list(self.strides)} do not fit "
                f"{size}x{size} pixels: a kernel of {kernel} meets {side}x{side}",
            )
            side = (side - kernel) // stride + 1
        return side


@config_class
class PPOConfig:
    """Proximal policy optimisation.

    Attributes:
        num_envs: streams stepped together, worlds x agents, over all processes.
        num_steps: decisions per stream and rollout.
        epochs: passes over a rollout.
        minibatches: optimiser steps per pass.
        micro_batch: rows per forward and backward pass; gradients add up to the minibatch's. Only
            speed and memory depend on it: an activation should fit the CPU's cache. The fastest
            depends on the CPU (scripts/profile_ppo.py measures it).
        learning_rate: at the start.
        lr_schedule: linear [H] falls to `lr_final` of it over the budget; adaptive follows the
            measured KL divergence towards `desired_kl` (Rudin et al. 2022).
        lr_final: the last learning rate of lr_schedule=linear, as a share of the first.
        desired_kl: the KL divergence per update that lr_schedule=adaptive aims at.
        gamma: discount per decision [A].
        lam: lambda of generalised advantage estimation [S].
        clip: limit of the probability ratio's distance from 1 [S].
        value_clip: limit of the value's change, in scaled return units; null is off, as it does not
            help [A].
        value_coefficient: weight of the value's loss beside the policy's [H].
        entropy_coefficient: weight of the entropy bonus beside the policy's loss.
        max_grad_norm: limit of the gradient's global norm [H]; 0 is off.
        target_kl: end the epochs of an update when a minibatch exceeds 1.5 times it; null is off.
        bootstrap_truncation: value the state that a time limit cut off (Pardo et al. 2018); false
            takes it for an ending worth nothing, a known mistake kept for comparison.
        scale_rewards: divide rewards by the running std of discounted returns [H].
        weight_average: decay per update of an exponential average of the weights, which is what is
            judged and kept to drive with; training goes on with the weights themselves. Single
            updates leave a good driver now and then, their average hardly does (Polyak and Juditsky
            1992). 0 judges the weights themselves.
        max_nonfinite: skipped updates in a row until training stops.
    """

    num_envs: Count = 32
    num_steps: Count = 128
    epochs: Count = 4
    minibatches: Count = 8
    micro_batch: Count = 64
    learning_rate: Annotated[float, Field(gt=0, le=10)] = 5e-4
    lr_schedule: Literal["linear", "constant", "adaptive"] = "linear"
    lr_final: Share = 0.1
    desired_kl: Annotated[float, Field(gt=0, le=10)] = 0.01
    gamma: Share = 0.99
    lam: Share = 0.95
    clip: Annotated[float, Field(gt=0, le=10)] = 0.2
    value_clip: Annotated[float, Field(gt=0, le=1e6)] | None = None
    value_coefficient: Weight = 0.5
    entropy_coefficient: Weight = 0.0
    max_grad_norm: Weight = 0.5
    target_kl: Annotated[float, Field(gt=0, le=1e6)] | None = None
    bootstrap_truncation: bool = True
    scale_rewards: bool = True
    weight_average: Annotated[float, Field(ge=0, lt=1)] = 0.9
    max_nonfinite: Annotated[int, Field(ge=1)] = 5
    network: PolicyConfig = field(default_factory=PolicyConfig)

    def __post_init__(self) -> None:
        low, high = ADAPTIVE_LIMITS
        _require(
            self.lr_schedule != "adaptive" or low <= self.learning_rate <= high,
            f"lr_schedule=adaptive keeps learning_rate in {low:g} to {high:g}, unlike "
            f"{self.learning_rate:g}",
        )
        _require(
            self.minibatches <= self.num_envs * self.num_steps,
            f"minibatches={self.minibatches} is more than a rollout's "
            f"{self.num_envs * self.num_steps} rows",
        )


@config_class
class EvaluationConfig:
    """What is measured while training and after it, always by the locked evaluator.

    Attributes:
        env: the world of validation; null is the preset that was trained on.
        test_env: the world of the final evaluation; null is that of validation.
        direction: driving direction; null is the one trained (ccw where both were).
        every: engine ticks of training between two validations; 0 never validates.
        background: validate in a process of its own while training goes on.
        validation_tracks: how many validation tracks, from seed 1000 up.
        metric: what the best checkpoint is best in.
        test_seeds: tracks of the final evaluation; empty for none.
        threads: engine threads of the evaluator, or processes that step the real CarRacing-v3.
    """

    env: Literal["race", "carracing", "gymnasium_carracing"] | None = None
    test_env: Literal["race", "carracing", "gymnasium_carracing"] | None = None
    direction: Literal["ccw", "cw"] | None = None
    every: Annotated[int, Field(ge=0)] = 200_000
    background: bool = True
    validation_tracks: Annotated[int, Field(ge=1, le=VALIDATION_TRACKS)] = 50
    metric: Literal["native_return", "progress"] = "native_return"
    test_seeds: str | int = "0-19"
    threads: Annotated[int, Field(ge=1, le=256)] = 1

    def __post_init__(self) -> None:
        try:
            seeds = self.final_seeds()
        except UserError as error:
            raise ValueError(f"test_seeds: {error}") from None
        splits = {split_of(seed) for seed in seeds}
        _require(
            "sealed" not in splits,
            "test_seeds: sealed tracks are opened once per report, not by a training run",
        )
        _require(
            not splits & {"train", "validation"},
            "test_seeds: tracks of the training and validation splits cannot test what they made; "
            f"use {SPLITS['test'][0]}-{SPLITS['test'][1]}",
        )

    def validation_seeds(self) -> list[int]:
        """The validation tracks."""
        first, _ = SPLITS["validation"]
        return list(range(first, first + self.validation_tracks))

    def final_seeds(self) -> list[int]:
        """The tracks of the final evaluation, perhaps none."""
        return [] if self.test_seeds == "" else parse_seeds(str(self.test_seeds))


@config_class
class PPOTrainConfig:
    """Everything about one training run.

    Attributes:
        total_timesteps: budget in engine ticks summed over streams, action repeats included;
            training ends with the rollout that reaches it.
        seed: root of all randomness.
        device: auto, cpu, cuda, cuda:<index>, mps.
        precision: of the convolutions; everything after them is float32.
        threads: torch's CPU threads per process; 0 takes what this process may use (this
            setting decides: OMP_NUM_THREADS is ignored).
        processes: data-parallel processes (start them with torchrun).
        run_root: folder of all runs.
        name: of the run directory <run_root>/ppo/<name>; empty makes one from the time, and a name
            with a slash, such as mine/<name>, is the whole place below run_root.
        resume: a run directory to continue, with its own configuration.
        checkpoint_every: engine ticks between two writes of last.pt.
        video: write a video of the best checkpoint at the end.
        profile: so many updates are traced into profile.json of the run; 0 for none.
        display: live progress display; false prints a line now and then.
    """

    env: EnvConfig = field(default_factory=EnvConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)
    endings: EndingConfig = field(default_factory=EndingConfig)
    ppo: PPOConfig = field(default_factory=PPOConfig)
    logger: LoggerConfig = field(default_factory=LoggerConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    total_timesteps: Annotated[int, Field(ge=1, le=10**13)] = 2_400_000
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 1
    device: str = "auto"
    precision: Literal["32-true", "bf16-mixed"] = "32-true"
    threads: Annotated[int, Field(ge=0, le=1024)] = 0
    processes: Annotated[int, Field(ge=1)] = 1
    run_root: str = "runs"
    name: str = ""
    resume: str | None = None
    checkpoint_every: Annotated[int, Field(ge=1)] = 200_000
    video: bool = True
    profile: Annotated[int, Field(ge=0)] = 0
    display: bool = True

    def __post_init__(self) -> None:
        _require(
            self.ppo.num_envs % self.processes == 0,
            f"ppo.num_envs={self.ppo.num_envs} must divide evenly over processes={self.processes}",
        )
        agents = self.env.num_agents
        _require(
            self.ppo.num_envs % (self.processes * agents) == 0,
            f"ppo.num_envs={self.ppo.num_envs} is worlds x agents, so every process needs a "
            f"multiple of env.num_agents={agents}",
        )
        _require(
            self.ppo.minibatches * self.processes <= self.ppo.num_envs * self.ppo.num_steps,
            f"ppo.minibatches={self.ppo.minibatches} is more than the rows of a process",
        )
        rollout = self.ppo.num_envs * self.ppo.num_steps * self.env.action_repeat
        # A resumed run keeps the rollout of its own configuration, and its budget only grows.
        _require(
            self.resume is not None or self.total_timesteps >= rollout,
            f"total_timesteps={self.total_timesteps:,} is less than one rollout of {rollout:,} "
            "ticks (ppo.num_envs x ppo.num_steps x env.action_repeat): ask for at least that, or "
            "lower ppo.num_steps",
        )
        try:
            self.ppo.network.map_size(self.env.size)
        except ValueError as error:
            raise ValueError(f"ppo.network.{error}") from None
        _require(
            self.env.preset != "gymnasium_carracing" or self.reward == RewardConfig.native(),
            "env=gymnasium_carracing has CarRacing-v3's own reward only: add reward=native",
        )
        _require(
            self.env.preset != "gymnasium_carracing" or self.endings == EndingConfig(),
            "env=gymnasium_carracing ends episodes as CarRacing-v3 does: leave endings alone",
        )
        for world, direction in (self.validation_world, self.test_world):
            _require(
                direction == "ccw" or world == "race",
                f"evaluation.direction={direction} exists only in race, not in {world}; set "
                "evaluation.direction=ccw or evaluation.env=race",
            )

    @property
    def validation_world(self) -> tuple[str, str]:
        """World and driving direction of validation, as given or as trained."""
        trained = self.env.direction
        direction = self.evaluation.direction or ("ccw" if trained == "both" else trained)
        return self.evaluation.env or self.env.preset, direction

    @property
    def test_world(self) -> tuple[str, str]:
        """World and driving direction of the final evaluation."""
        world, direction = self.validation_world
        return self.evaluation.test_env or world, direction
