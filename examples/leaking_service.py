"""A service that leaks, which shows how the report names the leak.

    ACL_POOL_LEAKS=1 python examples/leaking_service.py

Sessions that time out are removed from one table and forgotten in another. The report at exit shows how
many bytes are held, under which tag, which line allocated them, and which table refers to them.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("ACL_BACKEND", "sim")

import aclpool as acl


class Service:
    """Answers requests; each session keeps its state on the device."""

    def __init__(self) -> None:
        self.pool = acl.Pool(device=0, limit="1 GiB")
        self.stream = acl.Stream(0)
        self.pool.register(self.stream)
        self.sessions: dict[int, acl.Buffer] = {}
        self.recent: dict[int, acl.Buffer] = {}

    def state_of(self, session: int) -> acl.Buffer:
        """Return a session's state, made at its first request."""
        if session not in self.sessions:
            self.sessions[session] = self.pool.alloc("3 MiB", self.stream, tag="session")
        self.recent[session] = self.sessions[session]
        return self.sessions[session]

    def answer(self, session: int) -> None:
        """Answer one request."""
        state = self.state_of(session)
        with self.pool.alloc("16 MiB", self.stream, tag="activations") as work:
            acl.fill(work, session % 256)
            acl.copy(state, work, nbytes=state.size)

    def time_out(self, session: int) -> None:
        """Forget a session."""
        del self.sessions[session]


def main() -> None:
    """Answer forty requests of twenty sessions; every session times out."""
    service = Service()
    mark = service.pool.mark()
    for number in range(40):
        service.answer(number % 20)
        if number >= 20:
            service.time_out(number % 20)
    report = service.pool.leaks(since=mark)
    print(f"sessions: {len(service.sessions)}; {report}")
    assert not service.sessions and len(report) == 20 and list(report.by_tag()) == ["session"]
    KEPT.append(service)


KEPT: list[Service] = []        # a service lives until the program ends

if __name__ == "__main__":
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    main()
