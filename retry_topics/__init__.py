"""WAITING ROOMS. They decide; they touch no client."""
