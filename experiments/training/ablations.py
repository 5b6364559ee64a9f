"""The ablation study as data: a base configuration and variants that change one thing each."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Variant:
    """One change of the base.

    Attributes:
        title: label in tables and figures.
        overrides: overrides of train_ppo.py, added to the base's.
    """

    title: str
    overrides: tuple[str, ...] = ()


BASE = ("experiment=budget_49k", "evaluation.every=0", "evaluation.test_seeds=0-99", "video=false",
        "display=false", "threads=1")  # fmt: skip
"""There is no validation. The last policy is judged, so that choosing a checkpoint cannot hide a
run that ends badly."""

VARIANTS: dict[str, Variant] = {
    "base": Variant("base: repeat 4, stack 4, grey"),
    "repeat_1": Variant("action repeat 1", ("env.action_repeat=1",)),
    "repeat_2": Variant("action repeat 2", ("env.action_repeat=2",)),
    "repeat_8": Variant("action repeat 8", ("env.action_repeat=8",)),
    "stack_1": Variant("one frame", ("env.frame_stack=1",)),
    "stack_2": Variant("two frames", ("env.frame_stack=2",)),
    "colour": Variant("colour", ("env.grey=false",)),
    "shared_heads": Variant("one MLP for policy and value", ("ppo.network.heads=shared",)),
    "squash_clip": Variant("clipped, not squashed", ("ppo.network.squash=clip",)),
    "two_pedals": Variant(
        "gas and brake apart",
        # With this initial action the car starts to move as in the base.
        ("ppo.network.pedals=two", "ppo.network.initial_action=[0,0.4,0.05]"),
    ),
    "no_bootstrap": Variant("truncation as an end", ("ppo.bootstrap_truncation=false",)),
    "no_reward_scaling": Variant("rewards not scaled", ("ppo.scale_rewards=false",)),
    "noise_kept": Variant("noise not faded", ("ppo.network.log_std_final=null",)),
    "random_start": Variant("a tenth of the starts in motion", ("env.random_start=0.1",)),
    "short_horizon": Variant("discount 0.97", ("ppo.gamma=0.97",)),
    "short_rollouts": Variant("8 streams instead of 16", ("ppo.num_envs=8",)),
    "weights_alone": Variant("weights not averaged", ("ppo.weight_average=0",)),
    "native_reward": Variant("CarRacing's reward", ("reward=native",)),
    "constant_rate": Variant("constant learning rate", ("ppo.lr_schedule=constant",)),
}
"""Budgets are counted in engine ticks, so a longer action repeat means fewer decisions and updates.
"""
