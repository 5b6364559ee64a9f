"""The rungs of the ladder: their settings, training, verdicts and records.

The command `experiments.ladder` uses it. May import: common, rssm's configuration, probes.
"""
