"""Stand-ins for the outside world; they share no code with the rooms, so one error is not made twice.

In reading order: run, http_provider, smtp_server, faults, ledger, callbacks.
"""
