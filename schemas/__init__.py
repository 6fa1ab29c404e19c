"""GROUND. The promises of the system, pure: no client library."""
