"""GROUND. The promises of the system, pure: no client library.

In reading order. Words: messages, outcomes, reasons, content, records, errors, clock.
Identity and places: keys, partitions, topics, metrics. Bytes: codec, compiled, schema_files, avro.
Who is reached how: policies, contacts, facets, stores, timeline.
What became of it: states, slots, packed_slots, rows, counts, reports.
"""
