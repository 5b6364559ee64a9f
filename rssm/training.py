"""How a world model trains: its updates, and the rows and validations between them.

Everything that an update depends on is a function of (seed, number of the update, data) apart from
the weights and the optimiser's moments. So last.pt holds little more than those, and a resumed run
ends with the weights of one that was not interrupted.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from lightning.fabric import Fabric
from torch import Tensor, nn

from common.errors import UserError
from common.seeding import derive
from common.torch.checkpoint import save_rejected
from common.torch.session import Session
from rssm import checkpoint
from rssm.config import OptimiserConfig
from rssm.data import Batch, MicroBatches
from rssm.objective import LossConfig, Losses, world_model_loss
from rssm.validation import Validator
from rssm.world_model import WorldModel


class Objective(nn.Module):
    """The loss of a model as a module: its forward pass is what processes share gradients of."""

    def __init__(self, model: WorldModel, config: LossConfig) -> None:
        super().__init__()
        self.model, self.config = model, config

    def forward(self, batch: Batch, noise: Tensor, kl_scale: float, pass_number: int) -> Losses:
        return world_model_loss(self.model, batch, noise, self.config, kl_scale, pass_number)


class RunningMeans:
    """Means of named numbers since the last `take`."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._count = 0

    def add(self, values: Mapping[str, Tensor]) -> None:
        """Count one more value () of each name."""
        self.add_to_sums(values)
        self._count += 1

    def add_to_sums(self, values: Mapping[str, Tensor]) -> None:
        """Add to the sums without counting."""
        for name, value in values.items():
            self._sums[name] = self._sums.get(name, torch.zeros(())) + value.detach().cpu()

    def take(self) -> dict[str, float]:
        """The means by name; then begin anew."""
        means = {name: float(total / max(self._count, 1)) for name, total in self._sums.items()}
        self._sums, self._count = {}, 0
        return means

    def state_dict(self) -> dict[str, Any]:
        return {"sums": {n: float(total) for n, total in self._sums.items()}, "count": self._count}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._sums = {name: torch.tensor(total) for name, total in state["sums"].items()}
        self._count = state["count"]


class WorldModelTrainer:
    """Optimises a world model on numbered batches: the `Learner` of a session.

    Args:
        fabric: device, precision and process group.
        model: what to train.
        batches: of the whole run.
        loss, optimiser: settings.
        seed: root seed of the latent noise.
        validator: makes a row of numbers from the model; None never.
        validate_every, log_every: updates between them.
        rejects: directory for batches whose gradient is not finite.
        about: joins every checkpoint's provenance.

    Attributes:
        update: number of finished updates.
        skipped: updates in a row that were skipped for a gradient that is not finite.
    """

    def __init__(
        self,
        fabric: Fabric,
        model: WorldModel,
        batches: MicroBatches,
        loss: LossConfig,
        optimiser: OptimiserConfig,
        seed: int,
        *,
        validator: Validator | None = None,
        validate_every: int = 0,
        log_every: int = 1,
        rejects: Path,
        about: Mapping[str, Any] | None = None,
    ) -> None:
        self.fabric, self.model, self.batches = fabric, model, batches
        self.loss, self.settings, self.seed = loss, optimiser, seed
        self.validator, self.validate_every = validator, validate_every
        self.log_every, self.rejects, self.about = log_every, rejects, dict(about or {})
        objective = Objective(model, loss).to(fabric.device)
        adam = torch.optim.AdamW(
            objective.parameters(), optimiser.learning_rate, eps=optimiser.eps, weight_decay=0.0
        )
        self.objective, self.optimiser = fabric.setup(objective, adam)
        self.update = 0
        self.skipped = 0
        self.means = RunningMeans()
        self._interval = _Interval(self.update, batches.seconds)

    @property
    def spent(self) -> int:
        """Finished updates."""
        return self.update

    def advance(self, session: Session) -> None:
        """One update, its row of metrics and its validation, where they are due."""
        self.train_once()
        last = self.update == self.batches.updates
        if last or self.update % self.log_every == 0:
            session.log(self._row(), self.update)
            self._interval = _Interval(self.update, self.batches.seconds)
        if self.validate_every and (last or self.update % self.validate_every == 0):
            if session.is_main:
                session.log({"updates": self.update} | self.validate(), self.update)
            self._interval = _Interval(self.update, self.batches.seconds)

    def conclude(self, session: Session) -> None:
        """Nothing is left to do after the last update."""

    def train_once(self) -> None:
        """One update: all its passes, then a step of the optimiser."""
        scale = self.settings.scale(self.update, self.batches.updates)
        for group in self.optimiser.param_groups:
            group["lr"] = self.settings.learning_rate * scale
        passes = self.batches.config.passes
        self.optimiser.zero_grad()
        for part in range(passes):
            number = self.update * passes + part
            batch = self.batches[number].to(self.fabric.device)
            with self.fabric.no_backward_sync(self.objective, enabled=part < passes - 1):
                losses = self.pass_loss(batch, number)
                self.fabric.backward(losses.total / passes)
            self.means.add(losses.parts | {"loss": losses.total})
        self._clip_gradients(batch)
        self.optimiser.step()
        self.update += 1

    def pass_loss(self, batch: Batch, number: int) -> Losses:
        """The loss of pass `number` of the run on its batch."""
        noise = self.noise(batch, number % self.batches.config.passes)
        return self.objective(batch, noise, self.loss.kl_scale(self.update), number)

    def noise(self, batch: Batch, part: int) -> Tensor:
        """Latent noise of one pass, the same on every device."""
        seed = derive(self.seed, "noise", self.update, part, self.fabric.global_rank)
        generator = torch.Generator().manual_seed(seed)
        shape = tuple(batch.is_first.shape)
        return self.model.core.latent.noise(shape, generator).to(self.fabric.device)

    def validate(self) -> dict[str, float]:
        """Numbers of the model as it is, as a row of metrics has them."""
        self.model.eval()
        numbers = self.validator(self.model)
        self.model.train()
        return {f"val/{name}": value for name, value in numbers.items()}

    def state_dict(self) -> dict[str, Any]:
        return {
            "update": self.update,
            "skipped": self.skipped,
            "means": self.means.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "model": {name: x.detach().cpu() for name, x in self.model.state_dict().items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.update, self.skipped = state["update"], state["skipped"]
        self.means.load_state_dict(state["means"])
        self._interval = _Interval(self.update, self.batches.seconds)

    def write_checkpoint(self, path: Path, state: Mapping[str, Any], training: Any) -> None:
        """Write the model's weights, and what a resume needs."""
        about = self.about | {"updates": self.update}
        checkpoint.save(path, self.model, about, training, weights=state["model"])

    def _clip_gradients(self, batch: Batch) -> None:
        """Clip the gradient. One that is not finite is removed, so that the step changes nothing,
        and its batch is kept."""
        norm = self.fabric.clip_gradients(
            self.objective, self.optimiser, max_norm=self.settings.max_grad_norm,
            error_if_nonfinite=False,
        )  # fmt: skip
        # Once per pass, like the parts of the loss.
        self.means.add_to_sums({"grad_norm": self.batches.config.passes * norm})
        finite = bool(torch.isfinite(norm))
        self.skipped = 0 if finite else self.skipped + 1
        if finite:
            return
        self.optimiser.zero_grad()
        path = self.rejects / f"update{self.update}_rank{self.fabric.global_rank}.pt"
        where = save_rejected(path, batch.tensors())
        if self.skipped >= self.settings.max_nonfinite:
            raise UserError(
                f"the gradient was not finite in {self.skipped} updates in a row; the last batch "
                f"is in {where}. Try a lower optimiser.learning_rate or a smaller max_grad_norm"
            )

    def _row(self) -> dict[str, Any]:
        config, interval = self.batches.config, self._interval
        elapsed = time.perf_counter() - interval.started
        frames = (self.update - interval.update) * config.batch * config.length
        return {
            "updates": self.update,
            "frames": self.update * config.batch * config.length,
            **{f"train/{name}": value for name, value in self.means.take().items()},
            "frames_per_second": frames / elapsed,
            "reading_share": (self.batches.seconds - interval.reading) / elapsed,
            "learning_rate": self.optimiser.param_groups[0]["lr"],
        }


class _Interval:
    """When the updates of the next row began: time, update, and seconds spent on reading."""

    def __init__(self, update: int, reading: float) -> None:
        self.started = time.perf_counter()
        self.update, self.reading = update, reading
