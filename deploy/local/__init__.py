"""Kafka and Redis on this machine.

In reading order: `stack` (both), `kafka`, `redis`, `jars` (Kafka's, by Maven), `tools` (programs found or asked
for), `places` (folders and ports).
"""
