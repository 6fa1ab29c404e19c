"""`dataclass` for what is made millions of times: frozen for the type checker, not for the interpreter.

An object that the interpreter keeps frozen is set field by field through a function: a StatusEvent takes 3.5 us to
make, and 1.0 us so. mypy, strict in the source and in the tests, refuses an assignment either way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    import dataclasses

    def dataclass(*, frozen, slots):
        """As the standard library's, and hashed as a frozen one is."""
        return dataclasses.dataclass(slots=slots, unsafe_hash=frozen)
