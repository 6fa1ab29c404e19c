"""`make demo`: the whole of Tidings on this machine, with a worker killed in the middle. `blast` uses its parts.

In reading order: `story` (from beginning to end), `place` (folder, ports, settings), `programs` (what it starts),
`narrating` (what is told meanwhile), `people` (who is written to), `door` (it as an upstream team), `outside` (what
really arrived), `singles`, `campaign`, `judge` (the last lines).
"""
