"""A schedule in GOAL: every message has its receive, and what waits for what."""

import re
from collections import Counter

import pytest

from emucoll.collectives import ALLGATHERS
from emucoll.errors import UsageError
from emucoll.sim.goal import goal


def test_two_ranks_and_two_directions() -> None:
    schedule = ALLGATHERS["ring"]
    assert "".join(goal(schedule, 2, schedule.rounds(2), 28)) == (
        "num_ranks 2\n"
        "\nrank 0 {\n"
        "l1: send 4b to 1 tag 1\n"
        "l2: recv 4b from 1 tag 1\nl2 requires l1\n"
        "l3: send 28b to 1 tag 1\nl3 requires l2\n"
        "l4: recv 28b from 1 tag 1\nl4 requires l3\n"
        "}\n"
        "\nrank 1 {\n"
        "l1: send 4b to 0 tag 1\n"
        "l2: recv 4b from 0 tag 1\nl2 requires l1\n"
        "l3: send 28b to 0 tag 1\nl3 requires l2\n"
        "l4: recv 28b from 0 tag 1\nl4 requires l3\n"
        "}\n"
    )


@pytest.mark.parametrize("allgather", ["ring", "ring-bidir", "ring-bidir-headerless"])
@pytest.mark.parametrize(("n", "record_bytes"), [(1, 28), (2, 28), (3, 0), (8, 120), (9, 1)])
def test_every_message_is_received_and_counted(allgather: str, n: int, record_bytes: int) -> None:
    schedule = ALLGATHERS[allgather]
    rounds = schedule.rounds(n)
    text = "".join(goal(schedule, n, rounds, record_bytes))
    sent, received = Counter[tuple[int, ...]](), Counter[tuple[int, ...]]()
    for block in text.split("\nrank ")[1:]:
        rank = int(block.split()[0])
        for kind, size, peer, tag in re.findall(
            r"l\d+: (send|recv) (\d+)b (?:to|from) (\d+) tag (\d+)\n", block
        ):
            if kind == "send":
                sent[rank, int(peer), int(size), int(tag)] += 1
            else:
                received[int(peer), rank, int(size), int(tag)] += 1
    assert sent == received
    traffic = schedule.traffic(n, rounds, record_bytes)
    assert sum(sent.values()) == n * traffic.messages
    sent_bytes = sum(size * count for (_, _, size, _), count in sent.items())
    assert sent_bytes == n * traffic.sent_bytes


def test_lanes_do_not_wait_for_each_other() -> None:
    schedule = ALLGATHERS["ring-bidir-headerless"]
    text = "".join(goal(schedule, 8, 2, 28))
    first = text.split("\nrank ")[1]
    # Both directions' sends, then both receives, each after the one of its own lane.
    assert "l3 requires l1\n" in first and "l4 requires l2\n" in first
    assert "l2 requires l1" not in first


@pytest.mark.parametrize("allgather", ["bruck", "ring-pipelined"])
def test_what_it_cannot_say(allgather: str) -> None:
    with pytest.raises(UsageError, match="no ring in lockstep"):
        next(goal(ALLGATHERS[allgather], 8, 3, 28))
