"""How a world model trains: a thin LightningModule, and callbacks for our run directory.

Everything that an update depends on is a function of (seed, number of the update, data) apart from
the weights and the optimiser's moments, so last.pt holds little more than those, and a resumed run
ends with the weights of one that was not interrupted.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor
from torch.utils.data import DataLoader

from common.errors import UserError
from common.mirror import Mirror
from common.runs import Run
from common.seeding import derive
from common.torch.checkpoint import save_rejected
from rssm import checkpoint
from rssm.config import OptimiserConfig
from rssm.data import Passes
from rssm.model.world_model import WorldModel
from rssm.objective import LossConfig


class Training(lightning.LightningModule):
    """Optimises a world model on numbered batches.

    Args:
        model: what to train.
        loss, optimiser: settings.
        seed: root seed of the latent noise.
        updates: in the whole run.
        passes: micro-batches per update.
        rejects: directory for batches whose gradient is not finite.

    Attributes:
        update: number of finished updates.
        skipped: updates in a row that were skipped for a gradient that is not finite.
        recent: sums of the parts of the loss since they were last taken, by name.
    """

    def __init__(
        self,
        model: WorldModel,
        loss: LossConfig,
        optimiser: OptimiserConfig,
        seed: int,
        updates: int,
        passes: int,
        rejects: Path,
    ) -> None:
        super().__init__()
        self.rejects = rejects
        self.model, self.loss, self.settings = model, loss, optimiser
        self.seed, self.updates, self.passes = seed, updates, passes
        self.update = 0
        self.skipped = 0
        self.recent: dict[str, Tensor] = defaultdict(lambda: torch.zeros(()))
        self.count = 0
        self._resumed: Mapping[str, Any] | None = None

    def training_step(self, batch: Mapping[str, Tensor], number: int) -> Tensor:
        part = number % self.passes
        losses = self.model.loss(
            batch,
            self.noise(batch, part),
            self.loss,
            self.loss.kl_scale(self.update),
            turn=self.update * self.passes + part,
        )
        self._batch = batch
        for name, value in (losses.parts | {"loss": losses.total.detach()}).items():
            self.recent[name] = self.recent[name] + value.cpu()
        self.count += 1
        return losses.total

    def noise(self, batch: Mapping[str, Tensor], part: int) -> Tensor:
        """Latent noise of one pass, the same on every device."""
        seed = derive(self.seed, "noise", self.update, part, self.global_rank)
        generator = torch.Generator().manual_seed(seed)
        shape = tuple(batch["is_first"].shape)
        return self.model.core.latent.noise(shape, generator).to(self.device)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        optimiser = torch.optim.AdamW(
            self.model.parameters(), self.settings.learning_rate, eps=self.settings.eps,
            weight_decay=0.0,
        )  # fmt: skip
        if self._resumed is not None:
            optimiser.load_state_dict(self._resumed["optimiser"])
        return optimiser

    def configure_gradient_clipping(
        self, optimizer: torch.optim.Optimizer, *_: Any, **__: Any
    ) -> None:
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.max_grad_norm)
        self.recent["grad_norm"] = self.recent["grad_norm"] + self.passes * norm.detach().cpu()
        finite = bool(torch.isfinite(norm))
        self.skipped = 0 if finite else self.skipped + 1
        if finite:
            return
        for parameter in self.model.parameters():
            parameter.grad = None  # the optimiser leaves such a parameter and its moments alone
        path = self._save_batch(self._batch)
        if self.skipped >= self.settings.max_nonfinite:
            raise UserError(
                f"the gradient was not finite in {self.skipped} updates in a row; the last batch "
                f"is in {path}. Try a lower optimiser.learning_rate or a smaller max_grad_norm"
            )

    def optimizer_step(self, epoch: int, batch: int, optimizer: Any, closure: Any) -> None:
        scale = self.settings.scale(self.update, self.updates)
        for group in optimizer.param_groups:
            group["lr"] = self.settings.learning_rate * scale
        optimizer.step(closure=closure)
        self.update += 1

    def take_recent(self) -> dict[str, float]:
        """Means since the last call, by name of the part."""
        means = {name: float(total / max(self.count, 1)) for name, total in self.recent.items()}
        self.recent.clear()
        self.count = 0
        return means

    def state(self) -> dict[str, Any]:
        """What last.pt needs besides the weights."""
        return {
            "update": self.update,
            "skipped": self.skipped,
            "recent": {name: float(total) for name, total in self.recent.items()},
            "count": self.count,
            "optimiser": self.optimizers().optimizer.state_dict(),
        }

    def resume(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`; call it before the optimiser is made."""
        self.update, self.skipped = state["update"], state["skipped"]
        self.count = state["count"]
        self.recent.update({name: torch.tensor(x) for name, x in state["recent"].items()})
        self._resumed = state

    def _save_batch(self, batch: Mapping[str, Tensor]) -> str:
        path = self.rejects / f"update{self.update}_rank{self.global_rank}.pt"
        return save_rejected(path, batch)


def loader(passes: Passes, first: int) -> DataLoader:
    """The micro-batches from update number `first` on, read in this process: that is quick."""
    numbers = range(first * passes.config.passes, len(passes))
    return DataLoader(passes, batch_size=None, sampler=numbers)


class Recorder(Callback):
    """Rows of metrics, checkpoints and validations in the rhythm of updates.

    Args:
        run: where they go.
        passes: the batches, for the time spent on them.
        every: updates between rows; save_every, validate_every likewise (0 never).
        validate: makes a row of numbers from the module.
        say: prints a line for people.
        about: joins every checkpoint's provenance.
        spent: seconds of the run before this process.
    """

    def __init__(
        self,
        run: Run,
        passes: Passes,
        mirror: Mirror,
        *,
        every: int,
        save_every: int,
        validate_every: int,
        validate: Callable[[WorldModel], dict[str, float]],
        say: Callable[[dict[str, Any]], None],
        about: Mapping[str, Any],
        spent: float = 0.0,
    ) -> None:
        self.run, self.passes, self.mirror = run, passes, mirror
        self._began = time.perf_counter() - spent
        self.every, self.save_every, self.validate_every = every, save_every, validate_every
        self.validate, self.say, self.about = validate, say, dict(about)

    def on_train_start(self, trainer: lightning.Trainer, module: Training) -> None:
        self._started, self._read = time.perf_counter(), self.passes.seconds
        self._since = self._seen = module.update

    def on_train_batch_end(self, trainer: lightning.Trainer, module: Training, *_: Any) -> None:
        if module.update == self._seen:  # a pass that only added to the gradient
            return
        self._seen = module.update
        update, last = module.update, module.update == module.updates
        if last or update % self.every == 0:
            self._log(module)
        if self.validate_every and (last or update % self.validate_every == 0):
            self._validate(module)
        if last or (self.save_every and update % self.save_every == 0):
            self.save(module)

    @property
    def seconds(self) -> float:
        """Wall-clock time of the run, over all resumes; what a kill undid does not count."""
        return time.perf_counter() - self._began

    def save(self, module: Training) -> None:
        """Write last.pt."""
        state = module.state()
        if module.global_rank == 0:
            path = self.run.checkpoints / "last.pt"
            about = self.about | {"updates": module.update}
            kept = {"rows": len(self.run.metrics()), "seconds": self.seconds}
            checkpoint.save(path, module.model, about, state | kept)

    def _log(self, module: Training) -> None:
        now = time.perf_counter()
        elapsed, updates = now - self._started, module.update - self._since
        config = self.passes.config
        row = {
            "updates": module.update,
            "frames": module.update * config.batch * config.length,
            **{f"train/{name}": value for name, value in module.take_recent().items()},
            "frames_per_second": updates * config.batch * config.length / elapsed,
            "reading_share": (self.passes.seconds - self._read) / elapsed,
            "learning_rate": module.optimizers().param_groups[0]["lr"],
        }
        self._publish(module, row)
        self._start_interval(module)

    def _validate(self, module: Training) -> None:
        if module.global_rank == 0:
            module.model.eval()
            with torch.no_grad():
                numbers = self.validate(module.model)
            module.model.train()
            row = {f"val/{name}": value for name, value in numbers.items()}
            self._publish(module, {"updates": module.update} | row)
        self._start_interval(module)

    def _start_interval(self, module: Training) -> None:
        self._started, self._read = time.perf_counter(), self.passes.seconds
        self._since = module.update

    def _publish(self, module: Training, row: dict[str, Any]) -> None:
        if module.global_rank == 0:
            self.run.log(row)
            self.mirror.log(row, module.update)
            self.say(row)
