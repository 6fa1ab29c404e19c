"""The whole road in one thread on a virtual clock, with seeded faults and a checker for each promise.

In reading order: `loop` (time that jumps, processes that die and stand still), `network` (the log and Redis behind
delays and outages), `vendor` (the providers), `people` and `workload` (who is written to and what for), `roles` (the
product's own parts, composed into processes), `standins` (what stands for Faust and the leader's group), `faults`,
`checkers`, `run` (one seed). `python -m tests.simulation --help` runs many.
"""
