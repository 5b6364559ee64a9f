"""The real Gymnasium CarRacing-v3 behind our interface, and the measurement of parity with it.

May import: `common` and all of `envs.racing` but `drivers` and `show` (extra `parity`).
"""
