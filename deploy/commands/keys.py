"""`tidings keys create`: a new API key, shown once; the file keeps only its hash."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence

from deploy.sections import SCOPES
from schemas.errors import Misconfigured


def create(scopes: Sequence[str]) -> tuple[str, str]:
    """(the key, its line for `keys = [...]`). Raises Misconfigured for a scope that does not exist."""
    unknown = [scope for scope in scopes if scope not in SCOPES]
    if unknown or not scopes:
        raise Misconfigured(f"--scopes: choose among {', '.join(SCOPES)}; not {', '.join(unknown) or 'none'}")
    key = f"tid_{secrets.token_urlsafe(32)}"
    quoted = ", ".join(f'"{scope}"' for scope in scopes)
    return key, f'{{ hash = "sha256:{hashlib.sha256(key.encode()).hexdigest()}", scopes = [{quoted}] }}'
