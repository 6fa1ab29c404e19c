"""The one seam where the Redis client's errors become ours; used by every store of this room."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources

from redis import exceptions

from schemas import metrics
from schemas.errors import StoreDown


@contextmanager
def answering(store: str) -> Iterator[None]:
    """Raises StoreDown for whatever the client raises when Redis does not answer or does not do as told."""
    try:
        yield
    except (exceptions.RedisError, OSError, TimeoutError) as error:
        metrics.REDIS_FAILURES.labels(store).inc()
        raise StoreDown(f"Redis does not answer the {store} store: {type(error).__name__}: {error}") from error


def script(name: str) -> str:
    """The text of a script beside these modules. Sent whole: no load step that an emptied server could forget."""
    return resources.files("streams").joinpath(name).read_text()
