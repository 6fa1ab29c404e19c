"""Which reader understands the callbacks of which provider kind; one line per vendor module."""

from __future__ import annotations

from collections.abc import Mapping

from producers.callbacks import http_provider
from schemas.reports import Reader

READERS: Mapping[str, Reader] = {"http": http_provider.read}
