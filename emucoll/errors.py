"""Every condition that a user, a peer or a machine can cause, as one tree of exceptions.

Broken invariants of our own are assertions and never appear here. A peer's faults stand apart from
ours, so that whoever catches them knows which side to look at. Knows nothing of sockets, processes
or exit codes.
"""


class EmucollError(Exception):
    """Root of the tree."""


class RemoteProtocolError(EmucollError):
    """A peer sent bytes that its protocol does not allow."""


class ConnectionClosed(RemoteProtocolError):
    """A peer closed (or reset) the connection in the middle of a message."""


class LocalProtocolError(EmucollError):
    """We were asked to send something that the protocol does not allow."""


class NetworkError(EmucollError):
    """The network, not the peer's protocol, failed."""


class ConnectFailed(NetworkError):
    """No connection came about: refused, unreachable, out of ports or out of descriptors."""

    def __init__(self, text: str, code: int = 0) -> None:
        """`code` is the errno."""
        super().__init__(text)
        self.code = code


class ListenFailed(NetworkError):
    """No listener could be bound: out of ports or out of descriptors."""


class DeadlineExceeded(EmucollError):
    """A wait reached its deadline."""


class Deadlock(EmucollError):
    """In virtual time: everybody waits, and nothing will come."""

    def __init__(self, at_s: float) -> None:
        """`at_s`: when."""
        super().__init__(
            f"at {at_s:g} s of virtual time everybody waits for somebody, and nothing is under way"
        )
        self.at_s = at_s


class NotInVirtualTime(EmucollError):
    """Something real, a socket, a thread or a process, was asked for in virtual time."""


class DriveError(EmucollError):
    """Something other than a Channel was awaited inside `drive`."""


class UsageError(EmucollError):
    """The user asked for something that cannot be; the text says what would be possible."""


class PreflightRefused(UsageError):
    """The run does not fit this machine."""


class Undecided(EmucollError):
    """There is no ground to answer on; the text says what would be."""


class HarnessError(EmucollError):
    """A worker, a root or a store was lost, or could not be started."""
