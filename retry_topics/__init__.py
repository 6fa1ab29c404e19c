"""WAITING ROOMS. They decide; they touch no client.

On the road, in reading order: `ladder` (outcome -> which tier, or the end), `budget` (how much may be retries),
`forwarder` (back to the lane when due), `hold` (the long waits), `dead_letters` (how a hopeless record is parked).
"""
