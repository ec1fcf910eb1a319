"""The steps of an initialization, as data: what ranks run, and what preflight counts."""

from dataclasses import dataclass

from emucoll.collectives import RING_PIPELINED
from emucoll.collectives.schedule import Schedule
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

    def rounds(self, n: int, steps: int | None) -> int:
        """How many rounds are run, at most `steps` of them where that applies."""
        rounds = self.schedule.rounds(n)
        return rounds if steps is None or not self.limited else min(steps, rounds)


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
