"""Stand-ins for the outside world; they share no code with the rooms, so one error is not made twice.

In reading order: `run` (all of them), `http_provider` (a gateway), `smtp_server` (a mail server), `faults` (what goes
wrong on demand), `ledger` (what arrived), `marks` (the same by name, timed), `callbacks` (reports, signed),
`status_api` (reports, asked for), `control` (what one can ask of them).
"""
