"""What things cost in a modelled cluster: LogGP (Alexandrov et al., SPAA 1995) with a CPU that is
serial per process, and Linux's rules for connections.

Pure: numbers and rules, no clock and no event.
"""

from dataclasses import dataclass

SYN_RETRIES_S = (1.0, 2.0, 3.0, 4.0, 5.0, 7.0, 11.0, 19.0, 35.0, 67.0)
"""When a SYN that nobody answered is sent again, from the first on: four times after a second each
(tcp_syn_linear_timeouts, Linux 6.5 and later), then after twice as long each (tcp_syn_retries: 6).
"""
SYN_GIVE_UP_S = 131.0
"""When connect fails with ETIMEDOUT."""
OLD_SYN_RETRIES_S = (1.0, 3.0, 7.0, 15.0, 31.0, 63.0)
"""The same before Linux 6.5, where connect fails after 127 s."""


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Seconds, and seconds a byte. All zero: what does not wait for a peer takes no time."""

    latency_s: float = 0.0
    """L between hosts: from the sender's network to the receiver's."""
    intra_host_latency_s: float | None = None
    """L within a host; None: as between hosts."""
    intra_rack_latency_s: float | None = None
    """L between the hosts of a rack; None: as between any."""
    hosts_per_rack: int = 1
    """Hosts with successive numbers."""
    handshake_latency_s: float | None = None
    """L of what establishes a connection; None: as that of its messages."""
    send_s: float = 0.0
    """o of a write, on the sender's CPU."""
    recv_s: float = 0.0
    """o of a read, on the receiver's CPU."""
    byte_s: float = 0.0
    """G: how long a byte keeps the sender's network busy."""
    contention_s: float = 0.0
    """What a write or a read takes longer on a socket both of whose directions a collective uses:
    they share its lock.
    """
    connect_s: float = 0.0
    """Of a connection, on the CPU of whoever asks for it."""
    accept_s: float = 0.0
    """Of a connection, on the CPU of whoever accepts it."""
    listen_s: float = 0.0
    """Of a listener."""
    somaxconn: int = 65_535
    """The most that a listener's backlog can be (net.core.somaxconn)."""
    window_bytes: int = 4 << 20
    """What a connection holds that the receiver has not read: socket buffers of both sides."""
    syn_retries_s: tuple[float, ...] = SYN_RETRIES_S
    syn_give_up_s: float = SYN_GIVE_UP_S

    def latency_between(self, host: int, other: int) -> float:
        """L from one host to another, within a rack, or within a host."""
        if host == other and self.intra_host_latency_s is not None:
            return self.intra_host_latency_s
        if (
            self.intra_rack_latency_s is not None
            and host // self.hosts_per_rack == other // self.hosts_per_rack
        ):
            return self.intra_rack_latency_s
        return self.latency_s
