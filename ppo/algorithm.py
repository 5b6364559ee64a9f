"""The update: clipped objective, value regression and entropy bonus over one rollout.

Sources: Schulman et al. 2017; details by Huang et al. 2022 (per-minibatch advantage normalisation,
Adam's epsilon, gradient clipping); adaptive learning rate by Rudin et al. 2022.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from lightning.fabric import Fabric
from torch import Tensor, nn

from common.errors import UserError
from common.rl.returns import EPSILON, standardise
from ppo.config import ADAPTIVE_LIMITS, PPOConfig
from ppo.policy import ActorCritic
from ppo.rollout import RolloutBuffer

ADAM_EPSILON = 1e-5
_LR_STEP = 1.5


class TrainingDiverged(UserError):
    """Losses stayed non-finite; says where the offending batch was saved."""


def surrogate(log_ratio: Tensor, advantage: Tensor, clip: float) -> Tensor:
    """The clipped policy loss per row (to be minimised)."""
    ratio = log_ratio.exp()
    return -torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)


def value_error(value: Tensor, old: Tensor, target: Tensor, clip: float | None) -> Tensor:
    """Half the squared error per row; with `clip`, the worse of it and the clipped value's."""
    error = (value - target).square()
    if clip is not None:
        clipped = old + (value - old).clamp(-clip, clip)
        error = torch.maximum(error, (clipped - target).square())
    return 0.5 * error


def scheduled_rate(config: PPOConfig, elapsed: float, current: float, kl: float | None) -> float:
    """Learning rate for the next update.

    `elapsed` is the spent share of the budget, `current` the last rate, `kl` the last update's
    divergence (None before the first).
    """
    if config.lr_schedule == "constant":
        return config.learning_rate
    if config.lr_schedule == "linear":
        share = 1 - (1 - config.lr_final) * min(elapsed, 1.0)
        return config.learning_rate * share
    if kl is not None and kl > 2 * config.desired_kl:
        current /= _LR_STEP
    elif kl is not None and kl < 0.5 * config.desired_kl:
        current *= _LR_STEP
    low, high = ADAPTIVE_LIMITS
    return min(max(current, low), high)


class PPO:
    """Optimises a policy on rollouts.

    `save_batch(rows)` is called with the flat data of a minibatch whose loss or gradient was not
    finite, and returns where it put it. `generator` draws the minibatches and the entropy's noise.
    """

    def __init__(
        self,
        fabric: Fabric,
        policy: ActorCritic,
        config: PPOConfig,
        generator: torch.Generator,
        save_batch: Callable[[dict[str, Tensor]], Any],
    ) -> None:
        self.fabric, self.policy, self.config = fabric, policy, config
        self.generator, self.save_batch = generator, save_batch
        fused = fabric.device.type in ("cpu", "cuda")
        optimiser = torch.optim.Adam(
            policy.parameters(), config.learning_rate, eps=ADAM_EPSILON, fused=fused
        )
        # Only the forward pass goes through Fabric (gradient exchange between processes).
        self.module, self.optimiser = fabric.setup(policy, optimiser, move_to_device=False)
        self.skipped_in_a_row = 0

    def state_dict(self) -> dict[str, Any]:
        return {
            "optimiser": self.optimiser.state_dict(),
            "skipped_in_a_row": self.skipped_in_a_row,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.optimiser.load_state_dict(state["optimiser"])
        self.skipped_in_a_row = state["skipped_in_a_row"]

    def set_learning_rate(self, rate: float) -> None:
        for group in self.optimiser.param_groups:
            group["lr"] = rate

    def update(self, buffer: RolloutBuffer) -> dict[str, float]:
        """Run all epochs over `buffer`; returns the means of the losses and diagnostics."""
        config, totals, count, skipped, stopped = self.config, {}, 0, 0, False
        rows = buffer.active_rows()
        first_error = None
        for _ in range(config.epochs):
            order = rows[torch.randperm(len(rows), generator=self.generator).to(rows.device)]
            for minibatch in order.tensor_split(config.minibatches):
                metrics = self._accumulate(buffer, minibatch)
                if first_error is None:
                    # Nothing has changed yet: the ratio of every row must be 1.
                    first_error = metrics["ratio_error"]
                if not math.isfinite(self._shared(sum(metrics.values()))):
                    self._skip(buffer, minibatch)
                    skipped += 1
                    continue
                limit = config.target_kl
                if limit is not None and self._shared(metrics["approx_kl"]) > 1.5 * limit:
                    stopped = True
                    break
                self._step()
                totals = {name: totals.get(name, 0.0) + value for name, value in metrics.items()}
                count += 1
            if stopped:
                break
        self.optimiser.zero_grad()
        means = {name: total / count for name, total in totals.items() if name != "ratio_error"}
        means |= {
            "first_ratio_error": first_error,
            "explained_variance": explained(buffer),
            "skipped_steps": float(skipped),
            "stopped_early": float(stopped),
        }
        return {name: self._shared(value) for name, value in means.items()}

    def _accumulate(self, buffer: RolloutBuffer, minibatch: Tensor) -> dict[str, float]:
        """Add up the gradient of one minibatch, micro-batch by micro-batch."""
        config, device = self.config, buffer.pixels.device
        advantages = standardise(buffer.take("advantage", minibatch))
        noise = torch.randn(len(minibatch), buffer.u.shape[-1], generator=self.generator)
        noise = noise.to(device)
        sums = torch.zeros(6, device=device)
        chunks = minibatch.split(config.micro_batch)
        for index, rows in enumerate(chunks):
            part = slice(index * config.micro_batch, index * config.micro_batch + len(rows))
            with self.fabric.no_backward_sync(self.module, enabled=index < len(chunks) - 1):
                log_prob, entropy, value = self.module(
                    buffer.take("pixels", rows), buffer.take("u", rows), noise[part]
                )
                log_ratio = log_prob - buffer.take("log_prob", rows)
                policy_loss = surrogate(log_ratio, advantages[part], config.clip)
                old_value, target = buffer.take("value", rows), buffer.take("target", rows)
                value_loss = value_error(value, old_value, target, config.value_clip)
                loss = (
                    policy_loss
                    + config.value_coefficient * value_loss
                    - config.entropy_coefficient * entropy
                )
                self.fabric.backward(loss.sum() / len(minibatch))
            with torch.no_grad():
                change = log_ratio.expm1()
                # Schulman's estimator: unbiased and never negative.
                kl = change - log_ratio
                parts = (policy_loss, value_loss, entropy, kl, (change.abs() > config.clip).float())
                sums[:5] += torch.stack([x.sum() for x in parts])
                sums[5] = torch.maximum(sums[5], change.abs().max())
        *means, ratio_error = (sums / sums.new_tensor([len(minibatch)] * 5 + [1])).tolist()
        names = ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction")
        limit = config.max_grad_norm or math.inf
        norm = nn.utils.clip_grad_norm_(self.policy.parameters(), limit).item()
        return dict(zip(names, means, strict=True)) | {
            "grad_norm": norm,
            "ratio_error": ratio_error,
        }

    def _step(self) -> None:
        self.optimiser.step()
        self.optimiser.zero_grad()
        self.policy.project()
        self.skipped_in_a_row = 0

    def _skip(self, buffer: RolloutBuffer, minibatch: Tensor) -> None:
        self.optimiser.zero_grad()
        self.skipped_in_a_row += 1
        names = ("pixels", "u", "log_prob", "value", "reward", "advantage", "target")
        where = self.save_batch({name: buffer.take(name, minibatch) for name in names})
        if self.skipped_in_a_row >= self.config.max_nonfinite:
            raise TrainingDiverged(
                f"the loss or its gradient was not finite in {self.skipped_in_a_row} optimiser "
                f"steps in a row; the last batch is in {where}. Lower ppo.learning_rate or "
                "ppo.max_grad_norm, or check the reward's coefficients, and start again from an "
                "earlier checkpoint"
            )

    def _shared(self, value: float) -> float:
        """The mean of `value` over processes."""
        if self.fabric.world_size == 1:
            return value
        return self.fabric.all_reduce(torch.tensor(value), reduce_op="mean").item()


def explained(buffer: RolloutBuffer) -> float:
    """Share of the value targets' variance that the value predicted; 0 if they do not vary."""
    rows = buffer.active_rows()
    target, value = buffer.take("target", rows), buffer.take("value", rows)
    variance = target.var(correction=0)
    return (1 - (target - value).var(correction=0) / (variance + EPSILON)).item()


class AveragedWeights:
    """An exponential moving average of a policy's weights, on the CPU.

    `share` of the average stays at every update; 0 is the policy itself.
    """

    def __init__(self, policy: nn.Module, share: float) -> None:
        self.policy, self.share = policy, share
        self._weights = copied(policy.state_dict())

    def update(self) -> None:
        """Move the average towards the weights as they are now."""
        for name, weight in copied(self.policy.state_dict()).items():
            self._weights[name].lerp_(weight, 1 - self.share)

    def state_dict(self) -> dict[str, Tensor]:
        """The average, as a policy's weights; not a copy."""
        return self._weights

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self._weights = copied(state)


def copied(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies on the CPU."""
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in weights.items()}
