"""For people to look at: the large antialiased view, its dashboard, and videos of them.

May import: `common` and all of `envs.racing`.
"""
