"""For people to look at: the large view with its dashboard, and videos of it.

May import: `common` and all of `envs.racing`.
"""
