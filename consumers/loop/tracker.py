"""What is finished of one assigned partition: the contiguous low watermark that may be committed.

One tracker for each assignment: when a partition is taken away its tracker is dead, and what still comes back
for it is dropped. Owned by the engine's event loop; the Kafka thread reads its numbers and owns `handed`.
"""

from __future__ import annotations

from collections import deque

from schemas.records import Record

ALONE_RECORDS = 500
"""So many records are handled one by one after a partition's process died several times at one offset."""


class Tracker:
    """One partition during one assignment. Offsets that never come (compaction, markers) count as done."""

    __slots__ = (
        "_done",
        "_open",
        "alive",
        "alone_left",
        "committed",
        "deferred",
        "draining",
        "end",
        "failures",
        "finished",
        "handed",
        "handed_bytes",
        "handed_to",
        "in_hand",
        "is_named",
        "next_offset",
        "partition",
        "pause_cause",
        "pending",
        "starts",
        "suspect",
        "taken",
        "taken_bytes",
        "topic",
        "watermark",
    )

    def __init__(self, topic: str, partition: int, start: int, starts: int = 1, suspect: int | None = None) -> None:
        self.topic = topic
        self.partition = partition
        self.watermark = start
        """The lowest offset that is not finished: what may be committed."""
        self.next_offset = start
        self.alive = True
        self.draining = False
        self.pending: deque[Record] = deque()
        self.in_hand = 0
        """Records handed to the handler and not finished or deferred yet."""
        self.deferred = 0
        self.finished = 0
        self.taken = 0
        self.taken_bytes = 0
        # How often a process started here without progress, and the record it died on: see starts.py.
        self.starts = starts
        self.suspect = suspect
        self.alone_left = 0
        self.failures: dict[int, int] = {}
        """Offset -> how often its batch was put off because the world was unwell."""
        # Written by the Kafka thread only.
        self.handed = 0
        self.handed_bytes = 0
        self.handed_to = start
        self.committed = start
        self.is_named = False
        """Whether the metadata name a record of it that is in hand alone."""
        self.end = start
        self.pause_cause = ""
        self._open: deque[tuple[int, int]] = deque()
        self._done: set[int] = set()

    def receive(self, records: list[Record]) -> None:
        """Records read from the partition, in order."""
        self.pending.extend(records)
        self._open.extend([(record.offset, record.timestamp_ms) for record in records])
        self.next_offset = records[-1].offset + 1
        self.watermark = self._open[0][0]

    def finish(self, offset: int) -> None:
        """The record is done for good, everything it led to is in the log. Called once for each record."""
        self.finished += 1
        if self.failures:
            self.failures.pop(offset, None)
        unfinished = self._open
        if unfinished[0][0] != offset:
            self._done.add(offset)
            return
        unfinished.popleft()
        done = self._done
        while done and unfinished and unfinished[0][0] in done:
            done.remove(unfinished.popleft()[0])
        self.watermark = unfinished[0][0] if unfinished else self.next_offset

    def take(self) -> Record:
        """The next record to be handled."""
        record = self.pending.popleft()
        self.taken += 1
        self.taken_bytes += len(record.value or b"")
        return record

    @property
    def done_above(self) -> int:
        """Records finished above the watermark."""
        return len(self._done)

    @property
    def span(self) -> int:
        """Offsets between the watermark and the newest record handed to us."""
        return self.handed_to - self.watermark

    @property
    def buffered(self) -> int:
        """Records handed to us that wait for the handler; exact enough in both threads."""
        return self.handed - self.taken

    @property
    def buffered_bytes(self) -> int:
        return self.handed_bytes - self.taken_bytes

    @property
    def unfinished(self) -> int:
        return len(self._open) - len(self._done)

    def has_work(self) -> bool:
        """Whether somebody should be busy: the handler, or the consumer with what lies unread in the log."""
        return self.in_hand > 0 or (not self.pause_cause and (bool(self.pending) or self.end > self.handed_to))

    def oldest_ms(self) -> int | None:
        """When the oldest unfinished record was written."""
        return self._open[0][1] if self._open else None

    def die(self) -> None:
        """The partition is not ours any more; nothing of it is kept."""
        self.alive = False
        self.pending.clear()
        self._open.clear()
        self._done.clear()
