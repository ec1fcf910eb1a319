"""An AllGather sends the same over TCP, in virtual time and in rounds; and a message more in one of
them is noticed.
"""

import numpy as np
import pytest

from emucoll.collectives import ALLGATHERS
from emucoll.formation import FORMATIONS
from emucoll.sim.cost import Costs
from emucoll.sim.rounds import play, wires
from tests.agreement.measure import form, gather
from tests.worlds import Sent, default_world, make_world

CASES = [(1, 28), (2, 0), (3, 1), (15, 120), (64, 28), (257, 28)]
PLAYED = [name for name, schedule in ALLGATHERS.items() if not schedule.peers(2)]


def by_a_world(name: str, allgather: str, n: int, record_bytes: int, more: int = 0) -> Sent:
    """What the ranks of a world send in the AllGather, and `more` messages of a byte after it."""
    world = default_world() if name == "tcp" else make_world("virtual")

    async def main() -> Sent:
        formed = await form(world, FORMATIONS["tcpstore"], n)
        before = world.sent(formed.ranks_network)
        wrong = await gather(formed, allgather, record_bytes)
        assert wrong.count == 0
        for _ in range(more):
            await formed.rings[0].next.send(b"!")
        after = world.sent(formed.ranks_network)
        return Sent(*(late - early for late, early in zip(after, before, strict=True)))

    return world.run(main())


def by_rounds(allgather: str, n: int, record_bytes: int, more: int = 0) -> Sent:
    schedule, costs = ALLGATHERS[allgather], Costs()
    starts, wiring = np.zeros(n), wires(np.arange(n), costs)
    played = play(schedule, schedule.rounds(n), record_bytes, starts, costs, wiring)
    return Sent(played.messages + more, played.bytes + more, 0)


def differing(allgather: str, n: int, record_bytes: int, more: dict[str, int]) -> set[str]:
    """Whose counts stand alone; nobody's where all are the same."""
    sent = {
        "tcp": by_a_world("tcp", allgather, n, record_bytes, more.get("tcp", 0)),
        "virtual": by_a_world("virtual", allgather, n, record_bytes, more.get("virtual", 0)),
        "rounds": by_rounds(allgather, n, record_bytes, more.get("rounds", 0)),
    }
    return {name for name, each in sent.items() if list(sent.values()).count(each) == 1}


@pytest.mark.parametrize("allgather", PLAYED)
@pytest.mark.parametrize(("n", "record_bytes"), CASES)
def test_all_three_send_the_same(allgather: str, n: int, record_bytes: int) -> None:
    assert differing(allgather, n, record_bytes, {}) == set()


@pytest.mark.parametrize("where", ["tcp", "virtual", "rounds"])
def test_one_message_more_is_noticed(where: str) -> None:
    assert differing("ring-bidir", 15, 120, {where: 1}) == {where}
