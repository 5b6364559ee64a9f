"""`python -m probes <probe>,<probe>|all checkpoint=...`; see `--help`."""

import sys

from common import cli
from common.errors import ConfigError
from probes.clips import RULES
from probes.runs import Settings, judge, list_clips

DESCRIPTION = f"""
Judge a world model by probes: {", ".join(RULES)}, or all. Separate several by commas.

    python -m probes sharp_turn checkpoint=runs/rssm/<run>/checkpoints/final.pt
    python -m probes all checkpoint=experiments/checkpoints/P5.pt film=false
    python -m probes clips

`clips` only lists the windows that the rules select, and says whether they are the committed ones.

The clips come from tracks that are never used for training. Collect them with
python scripts/collect_replay.py dataset=PROBE (dataset=NOVEL for novel_layout). Numbers, curves,
figures and films are written below runs/.
"""


def main() -> None:
    arguments = sys.argv[1:]
    named = arguments.pop(0) if arguments and "=" not in arguments[0] else ""
    if named.startswith("-"):
        arguments, named = [named, *arguments], ""
    settings = cli.parse(Settings, DESCRIPTION, arguments)
    if named == "clips":
        cli.finish(list_clips(settings))
        return
    probes = list(RULES) if named == "all" else named.split(",")
    for probe in probes:
        if probe not in RULES:
            raise ConfigError(f"name a probe: {', '.join(RULES)} or all, not {probe!r}")
    if not settings.checkpoint:
        raise ConfigError("name a world model: checkpoint=<file or run>")
    cli.finish(judge(probes, settings))


if __name__ == "__main__":
    cli.run_main(main)
