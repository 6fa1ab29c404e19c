"""FACING ACROSS. Log to log, log to table."""
