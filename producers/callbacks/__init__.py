"""Provider webhooks: verified, written raw, read later.

On the road, in reading order: `server` (takes them), `signatures` (who may post), `http_provider` (reads what a
gateway of kind `http` reports; one such module per vendor).
"""
