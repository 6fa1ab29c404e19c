"""The commands of `tidings` that need more than a line: local, simulate, keys, users. `cli.py` names them all."""
