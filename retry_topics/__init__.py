"""WAITING ROOMS. They decide; they touch no client.

In reading order: ladder, budget, forwarder, dead_letters.
"""
