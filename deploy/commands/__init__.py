"""The commands of `tidings` that need more than a line; `cli.py` names them all.

In reading order: `keys` (create), `asking` (errors on the way to the API), `users` (import), `campaigns` (list, show,
steer), `holds` (list, release, drop), `breakers` (list, open, close), `explain` (one message's story), `local` (up,
down), `simulate` (the stand-ins for providers).
"""
