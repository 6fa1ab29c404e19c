"""The HTTP API: one module per resource, all behind one door.

On the road, in reading order: `app` (every request passes it), `parts` (what it is made of), `trace` (which request
this is), `problems` (answers that say what was wrong), `bodies` (JSON in and out), `notifications`,
`notification_status` (what GET tells), `accepted_records` (what was asked), `cancellation` (DELETE), `campaigns`,
`campaign_orders` (steering them), `campaign_answers`, `campaign_recipients`, `explanations` (why, in plain words).
Beside it: `people` (what the resources about people share), `users`, `user_notifications`, `suppressions`, `inbox`;
for machines: `health`, `registry` (the schemas), `openapi`.
"""
