"""One adapter per kind of provider: a way there, a call in, an outcome out. None knows another; none retries.

On the road, in reading order: `contract` (the port), `http` (in-house gateways), `http_pool` (its client), `pool`
(reusable connections), `retry_after`, `http_status` (what became of a message, asked), `smtp` (email),
`smtp_connection` (its client), `smtp_replies` (what an answer means), `mime` (an email's bytes), `inapp` (our own
inbox).
"""
