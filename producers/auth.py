"""Who is calling: Bearer API keys, each of one tenant with scopes. Only their hashes are known here.

Without any configured key the API serves callers on this machine only, as the one tenant named in `Keys`, and lets
no page of another site change anything.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from urllib.parse import urlsplit

from aiohttp import web

from schemas.errors import Misconfigured, Refused


class Scope(StrEnum):
    """What a key may do."""

    SEND = "send"
    CAMPAIGNS = "campaigns"
    USERS = "users"
    READ = "read"
    OPERATE = "operate"


@dataclass(frozen=True, slots=True)
class ApiKey:
    """One configured key. sha256: hex digest of the key's text."""

    sha256: str
    tenant: str
    scopes: frozenset[Scope]


@dataclass(frozen=True, slots=True)
class Identity:
    """The caller of one request."""

    tenant: str
    scopes: frozenset[Scope]


IDENTITY = web.RequestKey("identity", Identity)
_READING = ("GET", "HEAD")


class Keys:
    """All configured keys. open_tenant: whom callers on this machine act for while there is no key at all."""

    def __init__(self, configured: Sequence[ApiKey] = (), open_tenant: str = "default") -> None:
        self._by_hash = {key.sha256.lower(): Identity(key.tenant, key.scopes) for key in configured}
        self._open = Identity(open_tenant, frozenset(Scope))

    @property
    def are_configured(self) -> bool:
        return bool(self._by_hash)

    def check_listen(self, host: str) -> None:
        """Raises Misconfigured when an address that others can reach would be served without keys."""
        if not self.are_configured and not _is_loopback(host):
            raise Misconfigured(
                f"[api] listen names {host!r}, which other machines can reach, but no API key is configured: "
                "add one (`tidings keys create`) or listen on 127.0.0.1"
            )

    def identify(self, authorization: str, remote: str | None, host: str) -> Identity:
        """The caller. Raises Refused 401 for a missing or unknown key, 403 from afar while no key is configured.

        host is what the caller calls us: a page of another site whose name was made to point here calls us
        by that name, and must not get in.
        """
        if not self.are_configured:
            if not (_is_loopback(remote or "") and _is_loopback(_without_port(host))):
                raise Refused("", "no API key is configured, so only callers on this machine are served", 403)
            return self._open
        scheme, _, key = authorization.partition(" ")
        found = self._by_hash.get(hashlib.sha256(key.strip().encode("utf-8", "replace")).hexdigest())
        if scheme.lower() != "bearer" or found is None:
            raise Refused("Authorization", "needs a valid API key: Authorization: Bearer <key>", 401)
        return found

    def check_origin(self, method: str, origin: str | None, host: str) -> None:
        """Raises Refused 403 when a page of another site lets a browser change something, while no key is configured.

        origin: what a browser says of the page that made it call, None when no page did. Such a page can post forms
        and bodies without a type, but cannot read the answers: reading is let through.
        """
        if self.are_configured or origin is None or method in _READING or _is_page_of(origin, host):
            return
        raise Refused("Origin", "names another site; without an API key nothing is changed from there", 403)


def allow(request: web.Request, scope: Scope, *others: Scope) -> str:
    """The caller's tenant; every handler begins with it. Any of the scopes will do.

    Raises Refused 403 when the key has none of them.
    """
    identity = request[IDENTITY]
    if identity.scopes.isdisjoint((scope, *others)):
        wanted = " or ".join(repr(one.value) for one in (scope, *others))
        raise Refused("Authorization", f"this key lacks the scope {wanted}", 403)
    return identity.tenant


def _is_page_of(origin: str, host: str) -> bool:
    try:
        return urlsplit(origin).netloc == host
    except ValueError:
        return False


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


@lru_cache(maxsize=1024)
def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host == "localhost"
