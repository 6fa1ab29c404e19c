"""How fast, at what cost, beside what else: `make bench`. Not part of the product; it uses Tidings as its users do.

In reading order: `__main__` (the command), `figures` (what is to be reached), `run` (cases in turn), `cases` (a module
for each thing that is measured), `bench` (what every case needs), `site` (one deployment), `load` (who gets what),
`client` (callers), `log` (topics filled and watched), `provider` and `standins` (the outside world, cheap),
`bare_loop`, `null_sender`, `profiled` (what is compared with, varied, looked into), `peers` (other queues),
`measuring` (rates and CPU), `claims_seen` (what lies in Redis), `programs` (child processes), `results`,
`page` and `machine` (what is written down).
"""
