"""How fast the world model trains, against TorchRL's DreamerV3 parts in the same run."""

from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

from common import cli
from common.errors import UserError
from common.runs import Run
from common.schema import config_class

if TYPE_CHECKING:
    from torch import Tensor

    from experiments.training.bench import Results
    from rssm.data import Batch, Reader

DESCRIPTION = """Time world-model training against TorchRL's DreamerV3 (extra bench).

    python scripts/bench_rssm.py                 all parts, about twenty minutes
    python scripts/bench_rssm.py part=speed      both in turns: forward, backward, optimiser step
    python scripts/bench_rssm.py part=quality    held-out reconstruction after equal frames
    python scripts/bench_rssm.py part=settings   our presets on one and two threads, and a profile
    python scripts/bench_rssm.py quick=true      all parts at their smallest

Both sides take the same batches of recorded driving (collect_replay.py dataset=D4_pilot), the same
number of threads and the same allocator settings. TorchRL has the sizes of DreamerV3's smallest
preset; ours are chosen for the same number of floating-point operations per frame, which torch
counts and the last line tells (`flops_ratio`, ours over theirs). Each side keeps its own kind of
latent state and its own optimiser. Quality gives TorchRL the best of several learning rates."""

OURS = {"see_change": False, "channels": (16, 16, 24), "deter": 256, "hidden": 128}
"""Our network at about the operations per frame of TorchRL's."""

THEIRS = {"depth": 4, "deter": 512, "hidden": 64, "stoch": 32, "classes": 4, "units": 64}
"""DreamerV3's `size1m`."""

RATES = {"ours": (3e-3,), "torchrl": (3e-4, 1e-3, 3e-3)}
"""Learning rates that each side is tried with: ours is the preset's; the paper's 4e-5 is for longer
training."""

TOLERANCE = 0.05
"""By how much operations per frame may differ."""


@config_class
class Settings:
    """The settings of the command.

    Attributes:
        part: one part of the study, or all.
        quick: everything at its smallest.
        rounds: measured turns of speed and settings.
        batch: windows per update.
        length: rows per window.
        updates: of each run of quality.
        threads: torch's CPU threads in speed and quality.
        data_root: of the data sets.
        dataset: whose train and val are used.
        record: keep as experiments/records/rssm_speed.json.
        run_root: where the run directory goes.
    """

    part: Literal["all", "speed", "quality", "settings"] = "all"
    quick: bool = False
    rounds: int = 9
    batch: int = 16
    length: int = 64
    updates: int = 150
    threads: int = 1
    data_root: str = "data"
    dataset: str = "D4_pilot"
    record: bool = False
    run_root: str = "runs"

    def __post_init__(self) -> None:
        cli.check_ranges(
            self,
            rounds=(1, 100),
            batch=(1, 1024),
            length=(2, 1024),
            updates=(1, 100_000),
            threads=(1, 256),
        )
        if self.record and (self.quick or self.part != "all"):
            raise ValueError("record=true keeps the whole study: leave out quick and part")


class Ours:
    """This project's world model with reward and continue heads.

    Args:
        reader: of the training split, for the targets' statistics.
        updates: over which the learning rate falls.
        network: sizes; by default `OURS`.
        rate: learning rate after the warm-up.
    """

    def __init__(
        self, reader: "Reader", updates: int, network: Any = None, rate: float = 3e-3
    ) -> None:
        import torch

        from rssm.config import HeadConfig, ModelConfig, OptimiserConfig, RSSMConfig
        from rssm.objective import LossConfig
        from rssm.world_model import WorldModel

        torch.manual_seed(1)
        heads = HeadConfig(telemetry=reader.telemetry, off_track=reader.off)
        self.model = WorldModel(ModelConfig(network or RSSMConfig(**OURS), heads))
        self.model.heads.set_statistics(reader.statistics())
        warmup = min(200, updates // 4)
        self.settings = OptimiserConfig(learning_rate=rate, warmup=warmup, max_grad_norm=100.0)
        self.losses = LossConfig(
            reward=1.0, telemetry=1.0, off_track=1.0, heads={}, dynamics=1.0, representation=0.1,
            image_every=1, overshoot=0.0,
        )  # fmt: skip
        self.optimiser = torch.optim.AdamW(
            self.model.parameters(), self.settings.learning_rate, weight_decay=0.0
        )
        self.update, self.updates = 0, updates

    def loss(self, batch: "Batch") -> "Tensor":
        """The training objective."""
        from rssm.objective import world_model_loss

        noise = self.model.core.latent.noise(tuple(batch.is_first.shape))
        return world_model_loss(self.model, batch, noise, self.losses).total

    def step(self, batch: "Batch") -> None:
        """One update."""
        import torch

        scale = self.settings.scale(min(self.update, self.updates - 1), self.updates)
        for group in self.optimiser.param_groups:
            group["lr"] = self.settings.learning_rate * scale
        self.optimiser.zero_grad()
        self.loss(batch).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.max_grad_norm)
        self.optimiser.step()
        self.update += 1

    def reconstructed(self, batch: "Batch") -> "Tensor":
        """(B, T, H, W, C) frames in [0, 1] from the posterior."""
        observed = self.model.observe(batch.observation, batch.action, batch.is_first)
        return self.model.decode(observed.state)


class TorchRL:
    """TorchRL's DreamerV3 world model with reward and continue heads, of public parts.

    Args:
        rate: learning rate after the warm-up.
        warmup: updates.
    """

    def __init__(self, rate: float = 1e-3, warmup: int = 1) -> None:
        import torch
        from tensordict.nn import TensorDictModule, TensorDictSequential
        from torchrl.modules import (
            DreamerV3ImageDecoder,
            DreamerV3ImageEncoder,
            DreamerV3MLP,
            RSSMPosteriorV3,
            RSSMPriorV3,
            RSSMRolloutV3,
        )
        from torchrl.objectives import DreamerV3ModelLoss
        from torchrl.trainers.algorithms import DreamerV3Optimizer

        torch.manual_seed(1)
        deter, stoch, classes = THEIRS["deter"], THEIRS["stoch"], THEIRS["classes"]
        self.deter, self.latent = deter, stoch * classes
        encoder = DreamerV3ImageEncoder(depth=THEIRS["depth"])
        embed = encoder.output_features((3, 96, 96))
        sizes = {"hidden_dim": THEIRS["hidden"], "rnn_hidden_dim": deter, "unimix": 0.01,
                 "num_categoricals": stoch, "num_classes": classes}  # fmt: skip
        prior = TensorDictModule(
            RSSMPriorV3(action_shape=(3,), action_dim=3, recurrent_model="block_gru", **sizes),
            in_keys=["state", "belief", "action"],
            out_keys=[("next", "prior_logits"), ("next", "state"), ("next", "belief")],
        )
        posterior = TensorDictModule(
            RSSMPosteriorV3(obs_embed_dim=embed, use_rms_norm=True, **sizes),
            in_keys=[("next", "belief"), ("next", "encoded_latents")],
            out_keys=[("next", "posterior_logits"), ("next", "state")],
        )
        given, features = [("next", "state"), ("next", "belief")], self.latent + deter
        decoder = DreamerV3ImageDecoder(features, (3, 96, 96), depth=THEIRS["depth"])

        def head(outputs: int) -> Any:
            return DreamerV3MLP(features, outputs, depth=1, num_cells=THEIRS["units"], outscale=0.0)

        world = TensorDictSequential(
            TensorDictModule(encoder, [("next", "pixels")], [("next", "encoded_latents")]),
            RSSMRolloutV3(prior, posterior),
            TensorDictModule(decoder, given, [("next", "reco_pixels")]),
            TensorDictModule(head(255), given, [("next", "reward_logits")]),
            TensorDictModule(head(1), given, [("next", "continue_pred")]),
        )
        self.objective = DreamerV3ModelLoss(
            world, kl_mode="separate", reco_symlog=False, lambda_continue=1.0, unimix=0.01
        )
        self.optimiser = DreamerV3Optimizer(
            self.objective.parameters(), lr=rate, warmup_steps=warmup
        )

    def _data(self, batch: "Batch") -> Any:
        import torch
        from tensordict import TensorDict

        shape = batch.is_first.shape
        return TensorDict(
            {
                "state": torch.zeros(*shape, self.latent),
                "belief": torch.zeros(*shape, self.deter),
                "action": batch.action,
                "is_init": batch.is_first.unsqueeze(-1),
                "next": {
                    "pixels": batch.observation.permute(0, 1, 4, 2, 3),
                    "reward": batch.targets["reward"].unsqueeze(-1),
                    "terminated": batch.targets["continue"].unsqueeze(-1) == 0,
                },
            },
            batch_size=shape,
        )

    def loss(self, batch: "Batch") -> "Tensor":
        """The training objective."""
        losses, _ = self.objective(self._data(batch))
        return sum(value.sum() for name, value in losses.items() if name.startswith("loss_"))

    def step(self, batch: "Batch") -> None:
        """One update."""
        self.optimiser.zero_grad()
        self.loss(batch).backward()
        self.optimiser.step()

    def reconstructed(self, batch: "Batch") -> "Tensor":
        """(B, T, H, W, C) frames in [0, 1] from the posterior."""
        pixels = self.objective.world_model(self._data(batch))["next", "reco_pixels"]
        return pixels.permute(0, 1, 3, 4, 2).clamp(0, 1)


def read(settings: Settings, split: str) -> "Reader":
    """A split of the data set, for reward and continue heads."""
    from rssm.data import DataConfig, Reader

    data = DataConfig(root=settings.data_root, dataset=settings.dataset)
    return Reader(data.open(split), (), off=False)


def batches(settings: Settings, reader: "Reader", seed: int) -> Any:
    """Update number -> windows, a pure function of the seed."""
    from replay import WindowSampler

    sampler = WindowSampler(reader.data.episodes, settings.length, settings.batch, seed)
    return lambda update: reader.batch(sampler.indices(update), settings.length)


def speed(settings: Settings, run: Run) -> "Results":
    """Frames/s of both on the same batches, in turns; metrics and details."""
    from experiments.training import bench

    reader = read(settings, "train")
    take, frames = batches(settings, reader, bench.SEED), settings.batch * settings.length
    sides: dict[str, Any] = {"ours": Ours(reader, settings.rounds + 1), "torchrl": TorchRL()}
    watch = bench.Stopwatch()
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(settings.rounds + 1):  # the first takes memory and chooses algorithms
        batch = take(number)
        for name, side in sides.items():
            lap = watch.lap(lambda side=side, batch=batch: side.step(batch))
            if number:
                seconds[name].append(lap["total"])
        print(f"speed: round {number} of {settings.rounds}", flush=True)
    small = take(0).first(2)
    table = {}
    for name, side in sides.items():
        counts = bench.flops(lambda side=side: side.loss(small))
        trained = side.model if name == "ours" else side.objective
        table[name] = {
            "frames_per_second": frames / median(seconds[name]),
            "mflop_per_frame": sum(counts.values()) / 2 / settings.length / 1e6,
            "convolutions_mflop": counts.get("convolutions", 0) / 2 / settings.length / 1e6,
            "parameters": sum(p.numel() for p in trained.parameters()),
        }
    cli.table(["side", *table["ours"]], [[n, *r.values()] for n, r in table.items()], "speed")
    ratios = [t / o for o, t in zip(seconds["ours"], seconds["torchrl"], strict=True)]
    work = table["ours"]["mflop_per_frame"] / table["torchrl"]["mflop_per_frame"]
    if abs(work - 1) > TOLERANCE:
        print(f"speed: operations per frame differ by {work - 1:+.1%}, more than {TOLERANCE:.0%}")
    metrics = {f"{name}_frames_per_second": row["frames_per_second"] for name, row in table.items()}
    metrics |= {"flops_ratio": work, "ratio_low": min(ratios), "ratio_high": max(ratios)}
    return metrics | {"ratio": median(ratios)}, {"sides": table}


def quality(settings: Settings, run: Run) -> "Results":
    """Held-out reconstruction of both after the same frames; metrics and details."""
    from experiments.training import bench

    reader, held_out = read(settings, "train"), read(settings, "val")
    take = batches(settings, reader, bench.SEED)
    judged = batches(settings, held_out, bench.SEED + 1)(0)
    warmup = max(settings.updates // 4, 1)
    makers = {
        "ours": lambda rate: Ours(reader, settings.updates, rate=rate),
        "torchrl": lambda rate: TorchRL(rate, warmup),
    }
    found: dict[str, dict[str, float]] = {}
    best: dict[str, float] = {}
    for name, make in makers.items():
        for rate in RATES[name]:
            side = make(rate)
            for update in range(settings.updates):
                side.step(take(update))
            found[f"{name} {rate:g}"] = {"psnr": reconstruction(side, judged)}
            print(
                f"quality: {name} {rate:g} {found[f'{name} {rate:g}']['psnr']:.2f} dB", flush=True
            )
        best[name] = max(found[f"{name} {rate:g}"]["psnr"] for rate in RATES[name])
    metrics = {"psnr": best["ours"], "psnr_torchrl": best["torchrl"]}
    return metrics, {"sides": found, "frames": settings.updates * settings.batch * settings.length}


def reconstruction(side: Any, batch: "Batch") -> float:
    """Mean PSNR in dB of the frames of a batch, followed and decoded."""
    import torch

    from rssm.validation import psnr

    torch.manual_seed(1)
    with torch.no_grad():
        return float(psnr(side.reconstructed(batch), batch.observation.float() / 255).mean())


OPERATIONS = {
    "convolutions, backward": "conv.*backward",
    "convolutions, forward": "conv",
    "linear layers": "mm|linear",
    "optimiser": "adam|foreach|vector_norm",
    "pixels to float, copies": "copy|to_copy",
    "activations and norms": "silu|sigmoid|tanh|norm|lerp",
    "elementwise": "aten::(add|mul|sub|div|sum|mean|square|pow|cat|stack)",
}
"""Parts of an update by the names of torch's operations; the first that matches counts."""


def presets(settings: Settings, run: Run) -> "Results":
    """Our XS preset on one and on two threads, and where its time goes; metrics and details."""
    import torch
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiler

    from common.config import compose
    from experiments.training import bench
    from rssm.training_run import WorldModelTrainConfig

    network = compose("train_world_model", WorldModelTrainConfig, ["rssm=xs"]).network
    reader = read(settings, "train")
    batch = batches(settings, reader, bench.SEED)(0)
    side = Ours(reader, settings.rounds + 1, network)
    watch, table = bench.Stopwatch(), {}
    for threads in (1, 2):
        torch.set_num_threads(threads)
        side.step(batch)  # takes memory
        laps = [watch.lap(lambda: side.step(batch))["total"] for _ in range(settings.rounds)]
        rate = settings.batch * settings.length / median(laps)
        table[f"xs, {threads} threads"] = {"frames_per_second": rate}
    torch.set_num_threads(settings.threads)
    with profiler(activities=[ProfilerActivity.CPU]) as trace:
        total = watch.lap(lambda: side.step(batch))["total"]
    shares = {n: s / total for n, s in bench.by_operation(trace, OPERATIONS).items()}
    shares["rest"] = 1 - sum(shares.values())
    cli.table(["part of an update", "share"], list(shares.items()), "profile")
    best = max(row["frames_per_second"] for row in table.values())
    return {"best_frames_per_second": best}, {"settings": table, "shares": shares}


PARTS = {"quality": quality, "settings": presets, "speed": speed}  # `ratio` ends the last line


def main() -> None:
    settings = cli.parse(Settings, DESCRIPTION)
    if find_spec("torchrl") is None:
        raise UserError("TorchRL is not installed; install the extra: pip install -e '.[bench]'")
    if not (Path(settings.data_root) / settings.dataset).is_dir():
        raise UserError(
            f"{settings.data_root}/{settings.dataset}: no such data set; collect it by "
            f"python scripts/collect_replay.py dataset={settings.dataset} root={settings.data_root}"
        )
    if settings.quick:
        settings = replace(settings, rounds=1, batch=2, length=8, updates=2)
    chosen: Sequence[str] = list(PARTS) if settings.part == "all" else [settings.part]
    from common.torch.device import tune_allocator
    from experiments.training import bench

    tune_allocator()
    bench.measure(
        "bench_rssm", {n: PARTS[n] for n in chosen}, settings, dict.fromkeys(PARTS, "rssm_speed")
    )


if __name__ == "__main__":
    cli.run_main(main)
