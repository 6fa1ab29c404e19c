"""`make blast`: a million recipients at a provider's cap, with login codes beside them and a small campaign amid them.

In reading order: `story` (from beginning to end), `plan` (how large, how fast), `place` (settings), `audience` (who is
written to), `wishes` (login codes at an even pace), `watching` (what is looked at meanwhile), `ages` (how old the
oldest record of each lane is), `view` (what is shown of it), `kills` (the same with every kind of process killed once),
`facts` (what was found), `judging` (against what was promised), `report` (as tables, as JSON), `plot` (as a picture)
and `drawing` (its lines and axes).
"""
