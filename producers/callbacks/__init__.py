"""Provider webhooks: server takes them, signatures verifies, readers knows who reads which (http_provider)."""
