"""The parts of the one poll loop (`consumers/engine.py`).

On the road, in reading order: `tracker` (what is finished of a partition), `kafka_side` (the thread that owns the
consumer), `options` (its settings), `assignment` (where a partition begins), `commits` (offsets and their metadata),
`starts` (crashes without progress), `pressure` (pause and resume), `handout` (which records go to the handler),
`batches` (one call of it), `deferred` (records that wait), `outbox` (publishing what handlers answered), `gauges`
(metrics, health, signals).
"""
