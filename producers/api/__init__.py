"""The HTTP API: one module per resource, all behind the door of `app`.

In reading order: app, parts, trace, problems, bodies, notifications, notification_status, cancellation,
campaigns, campaign_answers, people, users, user_notifications, suppressions, inbox, health, registry, openapi.
"""
