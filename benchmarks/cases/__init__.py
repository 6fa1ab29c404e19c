"""What is measured, one module each: run once, a case answers with the numbers that `benchmarks/figures.py` judges.

`sender` (HTTP, TLS, the parts of its CPU), `nothing_outside` (a provider that costs nothing), `email`, `fan_out`,
`status`, `accept`, `cap` (transactional beside bulk, pace, a small campaign), `kill`, `campaign` (the whole road).
"""
