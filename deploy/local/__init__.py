"""Kafka and Redis on this machine. In reading order: stack, kafka, redis, jars, tools, places."""
