"""One way to break Tidings: a line or two of one file, and the test that must notice."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


class NoLongerApplies(Exception):
    """The code has moved: write the patch anew for what the file says now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """name: how the broken Tidings behaves. promise: the section of docs/guarantees.md that it breaks.

    old stands exactly once in file; new takes its place. test: node id of the test that must turn red. suffers:
    what somebody would go through if this were released.
    """

    name: str
    promise: int
    file: str
    old: str
    new: str
    test: str
    suffers: str

    @property
    def needs_servers(self) -> bool:
        """Whether its test may use the Kafka and the Redis of the run."""
        return not self.test.startswith("tests/unit/")

    def broken(self, tree: Path) -> str:
        """The whole file with the patch in it. Raises NoLongerApplies."""
        path = tree / self.file
        text = path.read_text() if path.exists() else ""
        times = text.count(self.old)
        if times != 1:
            found = "is not there any more" if not times else f"stands there {times} times"
            raise NoLongerApplies(f"{self.name}: no longer applies to {self.file}: {self.old.strip()!r} {found}")
        return text.replace(self.old, self.new)

    def apply(self, tree: Path) -> None:
        """Breaks the file in this copy of the tree. Raises NoLongerApplies."""
        (tree / self.file).write_text(self.broken(tree))
