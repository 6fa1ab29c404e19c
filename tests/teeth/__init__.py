"""Do our tests bite? Each patch breaks one promise in a scratch copy of the tree; the test named for it must fail.

`python -m tests.teeth` (`make test-teeth`) runs them all. In reading order: `patch` (one way to break Tidings),
`facing_in`, `facing_across`, `facing_out`, `ground` (the patches, by the room they break), `forgotten`, `held`,
`later`, `local_times`, `silence`, `steering` (by what is promised), `catalogue` (all of them), `scratch` (the copies),
`trial` (a test run and what it said), `__main__` (the command).
"""
