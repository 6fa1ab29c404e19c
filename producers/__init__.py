"""FACING IN. The world speaks, we write it down.

In reading order: `api` (one module per resource; 202 only after the log has it), `auth` (who may enter),
`fields` (what a caller may write in one field), `request_bodies` (the shapes), `requests` (body -> message, and
the rules for events that others publish), `idempotency` and `redis_line` (the same key, the same answer),
`recipient_lines` and `upload` (a stream of recipients -> pages), `campaign` and `campaign_view` (what is known of
campaigns), `publisher` (the door to the log), `callbacks` (what providers report back).
"""
