"""Kafka and Redis on this machine."""
