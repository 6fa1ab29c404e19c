"""Where a blast runs: its own Kafka and Redis, one provider, settings as a company would write them."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from deploy.blast.plan import Plan
from deploy.demo import place
from deploy.demo.place import Place
from deploy.local import places, stack

TEMPLATES = Path(__file__).parent / "templates"
NAME = "blast"
DATA = ("kafka/data", "redis", "tables")
"""A gigabyte or two after a large run."""

_SETTINGS = """\
[kafka]
bootstrap = "{kafka}"
[redis]
url = "{redis}"
[api]
listen = "127.0.0.1:{api_port}"
[callbacks]
listen = "127.0.0.1:{callbacks_port}"
[streams]
folder = "{folder}/tables"
[up]
logs = "{folder}/logs"
[templates]
path = "{templates}"
[channels.push]
providers = ["gateway"]
[providers.gateway]
kind = "http"
url = "http://127.0.0.1:{http_port}/send"
rate_per_s = {plan.rate_per_s}
burst = {plan.burst}
callback_secret = "{secret}"
[tenants.{tenant}]
locale = "en"
"""


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Another blast of this checkout waits: they would share a folder, and say nothing about the machine."""
    with places.only_one(places.home() / f"{NAME}.lock"):
        yield


def empty_folder() -> Path:
    """`.tidings/blast`, without anything of an earlier run."""
    return place.empty_folder(NAME)


def prepare(folder: Path, running: stack.Stack, plan: Plan) -> Place:
    return place.written(folder, running, _SETTINGS, {"templates": TEMPLATES, "plan": plan})


def tables(chosen: Place) -> Path:
    """The disk of `streams status`."""
    return chosen.folder / "tables"


def clear(folder: Path) -> None:
    """Removes the data of a run; logs stay."""
    for name in DATA:
        shutil.rmtree(folder / name, ignore_errors=True)
