"""ROOF. Chooses concrete parts, reads settings, starts processes. Nobody imports it.

In reading order: cli, commands, settings, sections, processes, running, ready, roles, up, children, logs,
provision, blueprint, broker_state, redis_client, local, simulators, demo, reference.
"""
