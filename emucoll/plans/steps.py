"""The steps of an initialization, as data: what ranks run, and what preflight counts."""

from dataclasses import dataclass

from emucoll.collectives import RING_PIPELINED
from emucoll.collectives.schedule import Schedule, rounds_run
from emucoll.wire.address import ADDRESS_BYTES


@dataclass(frozen=True)
class Gather:
    """One AllGather of every rank."""

    phase: str
    schedule: Schedule
    record_bytes: int
    """Each rank's contribution. Records of 28 bytes are the ranks' ring addresses."""
    limited: bool = True
    """Does `--steps` apply to it?"""

    @property
    def addresses(self) -> bool:
        """Are its records real addresses, instead of derived bytes?"""
        return self.record_bytes == ADDRESS_BYTES

    def hops(self, n: int, steps: int | None) -> int:
        """How many messages have to arrive one after the other, at least."""
        rounds = self.rounds(n, steps)
        return sum(len(self.schedule.exchanges(n, step)) for step in range(rounds))

    def rounds(self, n: int, steps: int | None) -> int:
        """How many rounds are run, at most `steps` of them where that applies."""
        return rounds_run(self.schedule, n, steps if self.limited else None)


def one_allgather(schedule: Schedule, record_bytes: int, n: int) -> tuple[Gather, ...]:
    """The AllGather that NCCL's bootstrap has first, by any schedule; before it, where the schedule
    has peers beyond the ring's two, one that gathers everybody's address.
    """
    peers = schedule.peers(n)
    gather = Gather("bootstrap.allgather" if peers else "bootstrap.ring", schedule, record_bytes)
    if not peers:
        return (gather,)
    return (
        Gather("bootstrap.addresses", RING_PIPELINED, ADDRESS_BYTES, limited=False),
        gather,
    )
