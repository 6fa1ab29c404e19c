"""The whole story of one message in plain words, for those who are asked about it.

On the road, in reading order: `facts` (what is known), `history` (what the log says of it), `words` (a sentence for
every state and reason), `moments` (times as people read them), `happened` (events as a list), `story` (facts to
sentences).
"""
