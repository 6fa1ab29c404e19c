"""Providers that cost as little as possible, so that the sender is what is measured; `book` counts what arrives.

`http_provider` and `smtp_server` are programs of their own. `tidings simulate` stands in where faults or callbacks
are wanted.
"""
