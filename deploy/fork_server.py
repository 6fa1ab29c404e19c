"""The process of which every role of `tidings up` is a fork: it imports what they need, once for all of them.

It opens no client, runs no loop and starts no thread, so a fork of it is as good as a new process, and shares with
its siblings whatever nobody writes to. `fork_client.py` is the other side of its door: a request is one line
{"words": [...], "environment": {...}} with two descriptors, for output and for `ready.tell`; the answers are
{"began": pid} and, at any time, {"ended": pid, "code": code}. Run as
`python -m deploy.fork_server DOOR PROGRAM [MODULE...]`: `main` of the module PROGRAM is what forks run, the MODULEs
are what it would import on its way.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

from deploy import children, ready

REQUEST_MOST_BYTES = 65_536
_PR_SET_NAME = 15
_TOLD_TO_STOP = (signal.SIGTERM, signal.SIGINT)


def main() -> None:
    """Serves until the supervisor closes its side. Each fork leaves here too, as the program with its own words."""
    # Who stops a whole group of processes means the roles; this one lives until they are gone.
    signal.pthread_sigmask(signal.SIG_BLOCK, _TOLD_TO_STOP)
    door = socket.socket(fileno=int(sys.argv[1]))
    gc.disable()
    program, *_ = [importlib.import_module(name) for name in sys.argv[2:]]
    # Forks must not visit these objects to look for garbage: visiting copies their pages.
    gc.freeze()
    words = Server(door).serve()
    if words is not None:
        sys.argv = ["tidings", *words]
        program.main()


@dataclass(frozen=True, slots=True)
class Request:
    """What to run, what its environment has more than ours, and the two descriptors it gets."""

    words: list[str]
    environment: dict[str, str]
    output: int
    ready: int


class Server:
    """door: towards the supervisor. bell: rings when a fork has ended."""

    def __init__(self, door: socket.socket) -> None:
        self._door = door
        self._bell, self._ring = socket.socketpair()
        self._running: set[int] = set()
        self._end_with_me = children.end_with_parent()

    def serve(self) -> list[str] | None:
        """Returns the words in every fork, and None here, once the supervisor is gone and all forks with it."""
        self._listen_for_ends()
        selector = selectors.PollSelector()  # has no descriptor of its own that a fork would have to close
        for end in (self._door, self._bell):
            selector.register(end, selectors.EVENT_READ)
        while True:
            called = [key.fileobj for key, _ in selector.select()]
            if self._bell in called:
                self._bell.recv(4096)
                self._reap()
            if self._door in called:
                request = self._next_request()
                if request is None:
                    self._end_all()
                    return None
                if self._fork(request):
                    return request.words

    def _listen_for_ends(self) -> None:
        self._ring.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._ring.fileno(), warn_on_full_buffer=False)

    def _next_request(self) -> Request | None:
        """None when the other side is closed. It sends one request at a time, and waits for its answer."""
        try:
            line, handles, _, _ = socket.recv_fds(self._door, REQUEST_MOST_BYTES, 2)
        except ConnectionError:
            return None
        if not line:
            return None
        asked = json.loads(line)
        return Request(asked["words"], asked["environment"], *handles)

    def _fork(self, request: Request) -> bool:
        """True in the fork."""
        pid = os.fork()
        if pid == 0:
            self._settle_in(request)
            return True
        os.close(request.output)
        os.close(request.ready)
        self._running.add(pid)
        self._tell({"began": pid})
        return False

    def _settle_in(self, request: Request) -> None:
        """In the fork: nothing of the server's stays, and the process is what a new one would be."""
        os.setsid()
        if self._end_with_me is not None:
            self._end_with_me()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for end in (self._door, self._bell, self._ring):
            end.close()
        for standard in (1, 2):
            os.dup2(request.output, standard)
        os.close(request.output)
        os.environ.update(request.environment)
        os.environ[ready.VARIABLE] = str(request.ready)
        _show(request.words)
        gc.enable()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _TOLD_TO_STOP)

    def _reap(self) -> None:
        """Tells of every fork that ended: one ring may stand for several."""
        while self._running:
            pid, how = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            self._running.discard(pid)
            self._tell({"ended": pid, "code": os.waitstatus_to_exitcode(how)})

    def _tell(self, answer: dict[str, int]) -> None:
        with contextlib.suppress(ConnectionError):  # the next read finds the door closed
            self._door.sendall(json.dumps(answer).encode() + b"\n")

    def _end_all(self) -> None:
        for pid in self._running:
            os.kill(pid, signal.SIGKILL)
        for pid in self._running:
            os.waitpid(pid, 0)


def _show(words: list[str]) -> None:
    """Names the process after its role where `ps` and `top` look; only Linux keeps that in a known place."""
    if not sys.platform.startswith("linux"):
        return
    shown = "\0".join(("tidings", *words)).encode()
    ctypes.CDLL(None).prctl(_PR_SET_NAME, " ".join(words).encode())
    # Fields 48 and 49, counted behind the name in parentheses: where the kernel keeps the command line.
    start, end = map(int, Path("/proc/self/stat").read_text().rpartition(") ")[2].split()[45:47])
    if start:
        ctypes.memmove(start, shown[: end - start - 1].ljust(end - start, b"\0"), end - start)


if __name__ == "__main__":
    main()
