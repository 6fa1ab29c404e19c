"""ROOF. Chooses concrete parts, reads settings, starts processes. Nobody imports it.

In reading order.
The command: `cli` (every verb), `commands` (those that need more than a line), `settings` (the only reader of file
and environment), `sections` and `origins` (which line or variable said it), `running` (one role until it is told to
stop), `ready` (how it says that it works), `logs`.
A process: `processes` (one short function each), `ground` (what all stand on), `templates` (checked as a whole),
`engines`, `senders`, `provider_rates` (how much providers let through), `budgets` (of money), `serving` (HTTP ports),
`watch` (numbers and health), `surroundings` (whether Redis and the log answer), `redis_client` (opened once),
`redis_trips` (asked by everybody), `redis_news` (listened to).
A machine: `up` (the supervisor), `roles` (what it runs), `fork_client` and `fork_server` (how it starts them),
`role_logs` (kept short), `children`.
The broker: `catalogue` (what it must have), `provision`, `blueprint` (the difference), `broker_state` (what it has).
Around it: `local` (Kafka and Redis to develop against), `simulators` (stand-ins for providers), `demo`, `blast` (a
million recipients, judged), `cost` (what processes take of the machine), `reference` (the generated pages).
"""
