"""ROOF. Chooses concrete parts, reads settings, starts processes. Nobody imports it."""
