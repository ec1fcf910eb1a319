"""What a process asked of the kernel and sent. Counting only."""


class Counters:
    """What this process asked of the kernel and sent, since the network was made."""

    __slots__ = (
        "accepts",
        "bytes_sent",
        "connects",
        "messages",
        "other",
        "reads",
        "writes",
    )

    def __init__(self) -> None:
        """All zero."""
        self.reads = self.writes = self.accepts = self.connects = self.other = 0
        self.bytes_sent = self.messages = 0

    @property
    def syscalls(self) -> int:
        """Socket calls made, epoll included."""
        return self.reads + self.writes + self.accepts + self.connects + self.other
