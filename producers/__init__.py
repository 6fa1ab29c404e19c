"""FACING IN. The world speaks, we write it down.

On the road, in reading order: `api` (one module per resource; 202 only after the log has it), `auth` (who may
enter), `fields` (what a caller may write in one field), `request_bodies` (the shapes), `requests` (body -> message,
and the rules for events that others publish), `idempotency` (the same key, the same answer), `recipient_lines`,
`plain_lines` and `upload` (a stream of recipients -> pages), `publisher` (the door to the log), `campaign` and
`campaign_view` (what is known of campaigns), `callbacks` (what providers report back), `explaining` (the story of
one message, for support).
"""
