"""Provider webhooks: verify, write raw."""
