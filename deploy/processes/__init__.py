"""One short function per process: builds its parts from the ground and runs them until it is cancelled.

The one place that knows every room, in a module for each facing, so that a role run alone imports its own room only:
`facing_in`, `facing_across`, `on_faust`, `facing_out`; what several of them need is in `shared`. `senders.py`
composes the workers; `ground.py` is what all stand on.
"""
