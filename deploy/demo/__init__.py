"""`make demo`: the whole of Tidings on this machine, with a worker killed in the middle.

In reading order: story, place, programs, people, door, outside, singles, campaign, judge.
"""
