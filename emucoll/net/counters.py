"""What a process asked of the kernel and sent. Counting only."""

from emucoll.net.base import LISTEN_BACKLOG, Address, Channel, Listener, Network


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

    def add(self, other: "Counters") -> None:
        """What `other` counted, too."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    @property
    def syscalls(self) -> int:
        """Socket calls made, epoll included."""
        return self.reads + self.writes + self.accepts + self.connects + self.other


class Counting:
    """A network that counts the connections made through it."""

    def __init__(self, network: Network) -> None:
        """Everything else is `network`'s."""
        self.network = network
        self.connects = 0

    def listen(self, backlog: int = LISTEN_BACKLOG) -> Listener:
        """See Network.listen."""
        return self.network.listen(backlog)

    async def connect(self, address: Address, deadline_s: float) -> Channel:
        """See Network.connect."""
        channel = await self.network.connect(address, deadline_s)
        self.connects += 1
        return channel
