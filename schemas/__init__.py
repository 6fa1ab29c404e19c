"""GROUND. The promises of the system, pure: no client library.

In reading order.
Words: `messages` (what travels), `quick` (how it is made quickly), `outcomes` (what a provider can answer), `reasons`
(why something was not sent), `content` (what a template made), `sms_segments` (how
many an SMS is billed as), `records` (what handlers get and answer, and the ports
to the log), `traces` (which request a record belongs to), `errors` (by who must act), `clock`, `local_times` (when a
wall time comes in a zone), `gaps` (where a process may die between two steps).
Identity and places: `keys` (every id and key), `partitions` (murmur2), `topics` (the catalogue), `metrics`.
Bytes: `codec` (bytes <-> message), `compiled` (schemas as functions), `schema_files`, and the folder `avro`.
Who is reached how: `policies` (what a template decides), `quiet_hours` (until when somebody sleeps), `contacts` (where
a person can be reached), `facets` (how a profile lies on its topic), `stores` (ports of what two rooms use), `trips`
(the port to Redis) and `shared_trips` (asked together), `timeline` (an entry of it),
`backstage` (what senders know, for support).
What became of it: `states` (one delivery), `slots` (one notification), `packed_slots` (its bytes), `rows` (a page of
them), `counts` (of a campaign), `given_orders` (to one), `standstill` (one that does not move), `forgetting` (when one
is over, and its id free), `reports` (what a provider says).
"""
