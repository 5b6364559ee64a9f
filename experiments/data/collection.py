"""Collects the data sets that `experiments.data.recipes` describes."""

import fcntl
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from omegaconf import OmegaConf

from common import schema
from common.errors import UserError
from common.files import read_json, sha256_file, write_json
from common.rl.policy import Policy
from common.runs import ROOT, code_state
from common.seeding import SPLITS, derive
from envs.racing import EndingConfig, EnvConfig, RacingVectorEnv, RewardConfig
from envs.racing.drivers import ActionNoise, PerTick, make_scenario
from envs.racing.pixels.camera import ZOOM, make_camera
from experiments.data.recipes import POLICY, TRACKS, Recipe, Source, recipe
from replay.collect import collect
from replay.curate import choose_episodes, copy_episodes, known_shards, link_shards
from replay.dataset import DataSet
from replay.schema import DIRECTIONS, Attributes
from replay.shards import ShardWriter

WORLDS = 16
"""How many cars drive at the same time."""

SHORTEST = 2
"""The shortest episode, in rows: one row before a step and one after it."""

WORLD = EnvConfig(preset="race", track_pool=0)


def describe_camera(size: int) -> dict[str, float]:
    """The camera geometry of recorded frames of size x size pixels, in the form data sets store."""
    camera = make_camera(size=size, grey=False, stack=1, indicators=True, zoom_in=False)
    return {
        "pixels_per_unit_across": 1 / camera.across,
        "pixels_per_unit_along": 1 / camera.along,
        "car_column": camera.centre_column,
        "car_row": camera.centre_row,
        "zoom": ZOOM,
    }


class DataSetBuilder:
    """Collects the rows that are still missing from the data sets at `root`.

    Args:
        root: the folder that holds all data sets.
        policy: the trained policy; `policy_hash` is the SHA-256 of its checkpoint.
        factor: multiplies the number of frames of every recipe.
        seed: seed of tracks, warm-ups and action noise.
        early: an early policy and its hash, used by the sources that ask for one.
        report: called with a title, the rows collected so far and the rows to collect.
    """

    def __init__(
        self,
        root: Path,
        policy: Policy,
        policy_hash: str,
        *,
        factor: float = 1.0,
        seed: int = 1,
        early: tuple[Policy, str] | None = None,
        report: Callable[[str, int, int], None] = lambda *_: None,
    ) -> None:
        self._root, self._factor, self._seed, self._report = root, factor, seed, report
        self._trained, self._early = (policy, policy_hash), early
        self._code = code_state()["sha256"]
        settings = OmegaConf.to_container(OmegaConf.load(ROOT / "conf/reward/progress.yaml"))
        self._reward = schema.build(RewardConfig, settings["reward"])
        # The finish line is not visible in the picture, so a model could not learn to predict an
        # end there.
        self._endings = schema.build(EndingConfig, settings["endings"] | {"finish": False})

    def fill(self, name: str) -> None:
        """Collect the missing rows of the data set `name`.

        The data sets that it is made of are collected first. Rows that an interrupted process
        wrote are kept and counted. A larger factor adds rows to those of a smaller one.
        """
        plan = recipe(name)
        with self._alone(name):
            self._fill(name, plan)

    def _fill(self, name: str, plan: Recipe) -> None:
        for part in plan.parts:
            self.fill(part)
            for split in recipe(part).splits():
                link_shards(self._root, part, name, split)
        for split, frames in plan.frames.items():
            for source in plan.sources:
                for direction in range(len(DIRECTIONS)):
                    rows = round(self._factor * frames * source.share / len(DIRECTIONS))
                    self._collect(name, plan, split, source, direction, max(rows, SHORTEST))
        if plan.selection is not None:
            self.fill(plan.selection.dataset)
            for split in plan.splits():
                self._choose(name, plan, split)

    @contextmanager
    def _alone(self, name: str) -> Iterator[None]:
        """Lock a data set, because two processes would collect the same episodes twice.

        Raises `UserError` if another process is collecting it, or if its rows come from another
        seed or policy.
        """
        place = self._root / name
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"cannot make {place}: {error.strerror}; choose another root") from None
        with open(place / ".collecting", "ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UserError(
                    f"{place} is being collected by another process: wait for it, or collect into "
                    "another root"
                ) from None
            early = None if self._early is None else self._early[1]
            settings = {"seed": self._seed, "policy": self._trained[1], "early": early}
            file_of_settings = place / "collected.json"
            first = read_json(file_of_settings) if file_of_settings.is_file() else settings
            differ = [
                f"{key} {first.get(key)}" for key in settings if first.get(key) != settings[key]
            ]
            if differ:
                raise UserError(
                    f"{place} was collected with {', '.join(differ)}: use the same settings, or "
                    "collect into another root"
                )
            write_json(file_of_settings, settings)
            yield

    def _collect(
        self, name: str, plan: Recipe, split: str, source: Source, direction: int, target: int
    ) -> None:
        episodes = [e for info in known_shards(self._root, name, split) for e in info.episodes]
        same = [e for e in episodes if e[3] == direction and e[4] == source.scenario]
        have = sum(length for _, length, *_ in same)
        missing = target - have
        if missing < SHORTEST:
            return
        count = math.ceil(missing / plan.length)
        worlds = min(WORLDS, count)
        names = (name, split, source.scenario, direction, have)
        seed = derive(self._seed, *names) % 2**63
        driver, policy = self._driver(source, seed)
        title = f"{name} {split} {source.scenario} {DIRECTIONS[direction]}"
        env = RacingVectorEnv(
            worlds,
            replace(WORLD, direction=DIRECTIONS[direction], tracks=plan.tracks),
            self._reward,
            seed=seed,
            split=TRACKS[split],
            track_seeds=_fresh_first(episodes, seed) if split == "probe" else None,
            endings=self._endings,
        )
        try:
            with ShardWriter(self._root, name, split, self._attributes(policy, plan)) as writer:
                collect(
                    env,
                    driver,
                    writer,
                    frames=missing,
                    scenario=source.scenario,
                    direction=direction,
                    length=math.ceil(missing / count),
                    warmup=plan.warmup,
                    seed=seed,
                    progress=lambda rows: self._report(title, rows, missing),
                )
        finally:
            env.close()

    def _driver(self, source: Source, seed: int) -> tuple[Policy, str]:
        """The policy of a source, and its name in the shards.

        All cars of a batch draw their noise from one random sequence. The ladder's data sets were
        collected this way, so the same recipe still gives the same rows.
        """
        if source.driver != POLICY:
            policy = make_scenario(
                source.driver, noise=source.noise, batch_seed=seed, pace=source.pace
            )
            return policy, f"{source.driver} pace={source.pace:g} noise={source.noise:g}"
        early = source.early and self._early is not None
        policy, content = self._early if early else self._trained
        noise = 0.1 if early else source.noise
        name = f"sha256:{content} noise={noise:g}"
        return ActionNoise(PerTick(policy), noise, batch_seed=seed), name

    def _attributes(self, policy: str, plan: Recipe) -> Attributes:
        return Attributes(
            environment=asdict(replace(WORLD, direction="both", tracks=plan.tracks)),
            reward=asdict(self._reward),
            endings=asdict(self._endings),
            camera=describe_camera(WORLD.size),
            action_repeat=WORLD.action_repeat,
            policy=policy,
            code=self._code,
        )

    def _choose(self, name: str, plan: Recipe, split: str) -> None:
        """Copy the selected episodes once. The `policy` attribute of the new shard marks them."""
        rule = plan.selection
        label = f"selection:{rule.dataset}"
        data = DataSet(self._root, rule.dataset, split, check=False)
        chosen = choose_episodes(data, rule.accepts, round(rule.share * data.rows))
        shards = known_shards(self._root, name, split)
        earlier = [shard for shard in shards if shard.attributes.policy == label]
        if earlier:
            if sum(len(shard.episodes) for shard in earlier) != len(chosen):
                raise UserError(
                    f"{self._root / name} was chosen from a smaller {rule.dataset}: remove it and "
                    "collect again"
                )
            return
        attributes = self._attributes(label, plan)
        # All in one shard: it exists completely or not at all, so an interrupted copy starts over.
        with ShardWriter(self._root, name, split, attributes, max_rows=data.rows) as writer:
            copy_episodes(data, chosen, writer)


def load_hashed(path: Path) -> tuple[Policy, str]:
    """The policy in a checkpoint, and the SHA-256 of its file."""
    import torch  # late: it takes seconds to start

    from ppo.evaluate import load_policy

    return load_policy(path, dtype=torch.float64), sha256_file(path)


def _fresh_first(episodes: list[tuple], seed: int) -> list[int]:
    """Probe tracks in random order; tracks that no episode has used yet come first."""
    first, last = SPLITS["probe"]
    tracks = np.random.default_rng(seed).permutation(np.arange(first, last + 1))
    used = {track for _, _, track, *_ in episodes}
    return sorted(tracks.tolist(), key=lambda track: track in used)
