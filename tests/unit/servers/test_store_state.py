"""What a TCPStore decides: replies byte by byte, who is woken when, and what it costs."""

from collections.abc import Hashable
from typing import Any

import pytest

from emucoll.errors import RemoteProtocolError
from emucoll.servers.store_state import StoreState
from emucoll.wire import tcpstore as wire
from emucoll.wire.tcpstore import Limits, Op, Request, RequestParser

STOP = b"\0"
CANCELED = b"\1"


def u64(n: int) -> bytes:
    return n.to_bytes(8, "little")


def i64(n: int) -> bytes:
    return n.to_bytes(8, "little", signed=True)


def value(data: bytes) -> bytes:
    return u64(len(data)) + data


class Bench:
    """A store and its clients: takes encoded requests, collects what others are sent."""

    def __init__(self, limits: Limits = wire.LIBUV_LIMITS) -> None:
        self.woken: list[Any] = []
        self.state: StoreState[Any] = StoreState(self.wake, limits)
        self.parser = RequestParser(Limits(value_bytes=1 << 24))
        self.parser.feed(wire.validate())

    def wake(self, client: Hashable, reply: bytes) -> None:
        assert reply == STOP
        self.woken.append(client)

    def ask(self, client: Hashable, data: bytes) -> bytes:
        """The direct reply to one request."""
        (request,) = self.parser.feed(data)
        return self.state.handle(client, request)

    def wakes(self, client: Hashable, data: bytes) -> list[Any]:
        """Whom a request without a direct reply wakes."""
        self.woken = []
        assert self.ask(client, data) == b""
        return self.woken


@pytest.fixture
def store() -> Bench:
    return Bench()


# The bytes seen from real servers, in the order in which they were. -> sent, <- received, both by
# client "me" unless another name leads.
CONVERSATION = """
    -> 0d 44332211                                                  <- 44332211
    -> 01 0200000000000000 2f61 0500000000000000 68656c6c6f         <-
    -> 03 0200000000000000 2f61                                     <- 0500000000000000 68656c6c6f
    -> 04 0200000000000000 2f63 0500000000000000                    <- 0500000000000000
    -> 04 0200000000000000 2f63 f9ffffffffffffff                    <- feffffffffffffff
    -> 03 0200000000000000 2f63                                     <- 0200000000000000 2d32
    -> 05 0100000000000000 0200000000000000 2f61                    <- 00
    -> 05 0200000000000000 0200000000000000 2f61 0500000000000000 2f6e6f7065    <- 01
    -> 06 0100000000000000 0200000000000000 2f61                    <- 00
    waiter -> 06 0100000000000000 0200000000000000 2f77             <-
    -> 01 0200000000000000 2f77 0000000000000000                    <- wakes waiter
    -> 0c                                                           <- 01
    -> 02 0200000000000000 2f6e 0000000000000000 0100000000000000 78            <- 0100000000000000 78
    -> 02 0200000000000000 2f6e 0100000000000000 78 0100000000000000 79         <- 0100000000000000 79
    -> 02 0200000000000000 2f6e 0100000000000000 78 0100000000000000 7a         <- 0100000000000000 79
    -> 02 0200000000000000 2f6d 0100000000000000 71 0100000000000000 7a         <- 0100000000000000 71
    -> 09 0200000000000000 2f61 0200000000000000 2121               <-
    -> 03 0200000000000000 2f61                                     <- 0700000000000000 68656c6c6f2121
    -> 0b 0200000000000000 0300000000000000 2f6b31 0200000000000000 7631 \
          0300000000000000 2f6b32 0300000000000000 763232           <-
    -> 0a 0200000000000000 0300000000000000 2f6b31 0300000000000000 2f6b32 \
                                              <- 0200000000000000 7631 0300000000000000 763232
    -> 08 0300000000000000 2f6b31                                   <- 0100000000000000
    -> 08 0300000000000000 2f6b31                                   <- 0000000000000000
    -> 07                                                           <- 0500000000000000
    -> 12 0200000000000000 2f62 0200000000000000                    <-
    waiter -> 12 0200000000000000 2f62 0200000000000000             <- 00 wakes me
    -> 0e 0200000000000000 2f71 0200000000000000 6162               <-
    -> 0f 0200000000000000 2f71                                     <- 0100000000000000 0200000000000000 6162
    -> 0f 0200000000000000 2f71                                     <- 0000000000000000
"""  # noqa: E501


def test_golden_conversation(store: Bench) -> None:
    lines = [line.strip() for line in CONVERSATION.replace("\\\n", "").splitlines() if line.strip()]
    for line in lines:
        client, exchange = line.split("->", 1)
        sent, received = exchange.split("<-", 1)
        reply, _, woken = received.partition("wakes")
        store.woken = []
        got = store.ask(client.strip() or "me", bytes.fromhex(sent))
        assert (got, store.woken) == (bytes.fromhex(reply), woken.split()), line
    assert store.state.requests == len(lines) == 28


def test_validate_is_counted_and_not_replied_to(store: Bench) -> None:
    assert store.state.handle(0, Request(Op.VALIDATE, number=wire.VALIDATE_MAGIC)) == b""
    assert store.state.requests == 1


# Values -----------------------------------------------------------------------------------------


def test_set_overwrites(store: Bench) -> None:
    store.ask(0, wire.set_request(b"k", b"long value"))
    store.ask(1, wire.set_request(b"k", b"v"))
    assert store.ask(0, wire.get_request(b"k")) == value(b"v")


def test_absent_keys_are_empty(store: Bench) -> None:
    # As libuv's server has it; the older one closes the connection.
    store.ask(0, wire.set_request(b"k", b"v"))
    assert store.ask(0, wire.get_request(b"none")) == value(b"")
    reply = store.ask(0, wire.multi_get_request([b"none", b"k", b"none"]))
    assert reply == value(b"") + value(b"v") + value(b"")
    assert store.ask(0, wire.multi_get_request([])) == b""


def test_append(store: Bench) -> None:
    for part in (b"a", b"bc", b"", b"def"):
        assert store.ask(0, wire.append_request(b"k", part)) == b""
    assert store.ask(0, wire.get_request(b"k")) == value(b"abcdef")
    assert store.ask(0, wire.multi_get_request([b"k", b"k"])) == value(b"abcdef") * 2
    assert store.ask(0, wire.compare_set_request(b"k", b"abcdef", b"x")) == value(b"x")
    assert type(store.ask(0, wire.get_request(b"k"))) is bytes


def test_append_leaves_the_value_first_set_alone(store: Bench) -> None:
    request = Request(Op.SET, (b"k",), (b"v",))
    for _ in range(2):
        store.state.handle(0, request)
        store.ask(0, wire.append_request(b"k", b"w"))
        store.ask(0, wire.append_request(b"k", b"x"))
        assert store.ask(0, wire.get_request(b"k")) == value(b"vwx")


def test_append_does_not_copy_what_is_there(store: Bench) -> None:
    # 100,000 ranks that append to one key would otherwise copy it 100,000 times.
    for part in (b"a", b"b"):
        store.ask(0, wire.append_request(b"k", part))
    stored = store.state._values[b"k"]
    store.ask(0, wire.append_request(b"k", b"c"))
    assert store.state._values[b"k"] is stored
    assert stored == b"abc"


def test_append_is_bounded() -> None:
    # Real servers let it grow without end.
    store = Bench(Limits(stored_bytes=5))
    store.ask(0, wire.append_request(b"k", b"123"))
    store.ask(0, wire.append_request(b"k", b"45"))
    with pytest.raises(RemoteProtocolError, match="longer than 5 B"):
        store.ask(0, wire.append_request(b"k", b"6"))
    assert store.ask(0, wire.get_request(b"k")) == value(b"12345")


def test_appended_counter_is_a_number(store: Bench) -> None:
    store.ask(0, wire.append_request(b"k", b"1"))
    store.ask(0, wire.append_request(b"k", b"2"))
    assert store.ask(0, wire.add_request(b"k", 1)) == i64(13)
    store.ask(0, wire.append_request(b"k", b"x"))
    store.ask(0, wire.append_request(b"k", b"y"))
    assert store.ask(0, wire.add_request(b"k", -20)) == i64(-7)


def test_delete_counts_keys(store: Bench) -> None:
    store.ask(0, wire.set_request(b"k", b""))  # an empty value is a value
    assert store.ask(0, wire.check_request([b"k"])) == b"\0"
    assert store.ask(0, wire.num_keys_request()) == i64(1)
    assert store.ask(0, wire.delete_request(b"k")) == i64(1)
    assert store.ask(0, wire.delete_request(b"k")) == i64(0)
    assert store.ask(0, wire.num_keys_request()) == i64(0)


def test_list_keys(store: Bench) -> None:
    assert store.ask(0, wire.list_keys_request()) == i64(0)
    store.ask(0, wire.set_request(b"/a", b"1"))
    store.ask(0, wire.add_request(b"init/", 1))
    store.ask(0, wire.queue_push_request(b"/q", b"1"))  # queues are no keys
    reply = store.ask(0, wire.list_keys_request())
    assert reply in (
        i64(2) + value(b"/a") + value(b"init/"),
        i64(2) + value(b"init/") + value(b"/a"),
    )
    assert store.ask(0, wire.num_keys_request()) == i64(2)


# ADD --------------------------------------------------------------------------------------------


def test_add_stores_ascii_decimal(store: Bench) -> None:
    assert store.ask(0, wire.add_request(b"k", -12)) == i64(-12)
    assert store.ask(0, wire.get_request(b"k")) == value(b"-12")
    assert store.ask(0, wire.add_request(b"k", 12)) == i64(0)
    assert store.ask(0, wire.get_request(b"k")) == value(b"0")


@pytest.mark.parametrize(
    ("stored", "number"),
    [
        (b"41", 41),
        (b" 12abc", 12),
        (b"\t\n\v\f\r +7", 7),
        (b"-0", 0),
        (b"-000000000000000000000000000000012", -12),
        (b"1_000", 1),
        (b"3.9", 3),
        (b"0x10", 0),
        (b"5\x006", 5),
        (b"999999999999999999", 999_999_999_999_999_999),
        (b"9223372036854775806", (1 << 63) - 2),
        (b"-9223372036854775808", -(1 << 63)),
    ],
)
def test_add_reads_as_stoll(store: Bench, stored: bytes, number: int) -> None:
    store.ask(0, wire.set_request(b"k", stored))
    assert store.ask(0, wire.add_request(b"k", 1)) == i64(number + 1)


@pytest.mark.parametrize(
    "stored",
    [
        b"", b" ", b"abc", b"-", b"+", b"- 1", b"+-1", b"\x001", b"_1", b"\xd9\xa1",
        b"9223372036854775808", b"-9223372036854775809", b"9" * 5000,
    ],
)  # fmt: skip
def test_add_to_no_number_closes(store: Bench, stored: bytes) -> None:
    store.ask(0, wire.set_request(b"k", stored))
    store.ask("waiter", wire.wait_request([b"other"]))
    for request in (wire.add_request(b"k", 0), wire.barrier_request(b"k", 2)):
        with pytest.raises(RemoteProtocolError, match="not a 64-bit number"):
            store.ask(0, request)
    assert store.ask(0, wire.get_request(b"k")) == value(stored)
    assert store.state.stuck_waits() == [(b"other", 1)]


def test_add_wraps(store: Bench) -> None:
    top = (1 << 63) - 1
    assert store.ask(0, wire.add_request(b"k", top)) == i64(top)
    assert store.ask(0, wire.add_request(b"k", 1)) == i64(-(1 << 63))
    assert store.ask(0, wire.get_request(b"k")) == value(b"-9223372036854775808")
    assert store.ask(0, wire.add_request(b"k", -1)) == i64(top)


# COMPARE_SET ------------------------------------------------------------------------------------


def test_compare_set(store: Bench) -> None:
    def compare_set(expected: bytes, desired: bytes) -> bytes:
        return store.ask(0, wire.compare_set_request(b"k", expected, desired))

    assert compare_set(b"q", b"z") == value(b"q")  # absent still, whatever this pretends
    assert store.ask(0, wire.check_request([b"k"])) == b"\1"
    assert compare_set(b"", b"x") == value(b"x")
    assert compare_set(b"", b"y") == value(b"x")
    assert compare_set(b"x", b"") == value(b"")
    assert store.ask(0, wire.check_request([b"k"])) == b"\0"
    assert compare_set(b"", b"y") == value(b"y")


def test_compare_set_wakes_if_it_writes(store: Bench) -> None:
    # libuv's server would wake at the first try, though the key is absent; the older one never.
    store.ask("waiter", wire.wait_request([b"k"]))
    store.ask(0, wire.compare_set_request(b"k", b"q", b"z"))
    assert store.woken == []
    store.ask(0, wire.compare_set_request(b"k", b"", b"x"))
    assert store.woken == ["waiter"]


# WAIT and CHECK ---------------------------------------------------------------------------------


def test_check(store: Bench) -> None:
    store.ask(0, wire.set_request(b"a", b""))
    store.ask(0, wire.queue_push_request(b"q", b"1"))
    assert store.ask(0, wire.check_request([])) == b"\0"
    assert store.ask(0, wire.check_request([b"a", b"q", b"a"])) == b"\0"
    assert store.ask(0, wire.check_request([b"a", b"none"])) == b"\1"
    assert store.state.stuck_waits() == []


def test_wait_for_what_is_there(store: Bench) -> None:
    store.ask(0, wire.set_request(b"a", b""))
    assert store.ask(0, wire.wait_request([])) == STOP
    assert store.ask(0, wire.wait_request([b"a", b"a"])) == STOP


def test_wait_for_all(store: Bench) -> None:
    store.ask(0, wire.set_request(b"there", b""))
    assert store.wakes("waiter", wire.wait_request([b"a", b"there", b"b"])) == []
    assert store.wakes(0, wire.set_request(b"a", b"")) == []
    assert store.wakes(0, wire.set_request(b"a", b"")) == []  # a key counts once
    assert store.wakes(0, wire.set_request(b"there", b"")) == []
    assert store.wakes(0, wire.set_request(b"b", b"")) == ["waiter"]
    assert store.wakes(0, wire.set_request(b"b", b"")) == []


def test_wait_is_not_looked_at_again(store: Bench) -> None:
    store.ask("waiter", wire.wait_request([b"p4", b"p5"]))
    store.ask(0, wire.set_request(b"p4", b""))
    store.ask(0, wire.delete_request(b"p4"))
    assert store.wakes(0, wire.set_request(b"p5", b"")) == ["waiter"]


def test_wait_for_a_key_twice(store: Bench) -> None:
    store.ask("waiter", wire.wait_request([b"a", b"b", b"a"]))
    assert store.wakes(0, wire.set_request(b"a", b"")) == []
    assert store.wakes(0, wire.set_request(b"b", b"")) == ["waiter"]
    store.ask("waiter", wire.wait_request([b"c", b"c"]))
    assert store.wakes(0, wire.set_request(b"c", b"")) == ["waiter"]


def test_all_are_woken_in_order(store: Bench) -> None:
    for client in range(5):
        store.ask(client, wire.wait_request([b"k"]))
    assert store.wakes(0, wire.set_request(b"k", b"")) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "waker",
    [
        wire.set_request(b"k", b"v"),
        wire.multi_set_request([(b"j", b"v"), (b"k", b"v")]),
        wire.append_request(b"k", b"v"),
        wire.add_request(b"k", 1),
        wire.add_request(b"k", 0),
        wire.compare_set_request(b"k", b"", b""),
        wire.queue_push_request(b"k", b"v"),
        wire.barrier_request(b"k", 1),
    ],
    ids=lambda data: Op(data[0]).name,
)
def test_wakers(store: Bench, waker: bytes) -> None:
    store.ask("waiter", wire.wait_request([b"k"]))
    store.ask(0, waker)
    assert store.woken == ["waiter"]
    assert store.state.stuck_waits() == []
    assert store.ask("waiter", wire.wait_request([b"k"])) == STOP


@pytest.mark.parametrize(
    "request_",
    [
        wire.get_request(b"k"),
        wire.multi_get_request([b"k"]),
        wire.delete_request(b"k"),
        wire.check_request([b"k"]),
        wire.compare_set_request(b"k", b"x", b"y"),
        wire.queue_pop_request(b"k"),
        wire.queue_len_request(b"k"),
        wire.barrier_request(b"k", 2),
        wire.set_request(b"/k", b""),
    ],
    ids=lambda data: Op(data[0]).name,
)
def test_no_wakers(store: Bench, request_: bytes) -> None:
    store.ask("waiter", wire.wait_request([b"k"]))
    store.ask(0, request_)
    assert store.woken == []
    assert store.wakes(0, wire.set_request(b"k", b""))[0] == "waiter"


def test_a_client_may_wake_itself(store: Bench) -> None:
    store.ask(0, wire.wait_request([b"k"]))
    assert store.ask(0, wire.ping(1)) == b"\1\0\0\0"  # other requests pass a pending WAIT
    assert store.wakes(0, wire.set_request(b"k", b"")) == [0]


def test_cancel_wait(store: Bench) -> None:
    assert store.ask(0, wire.cancel_wait_request()) == CANCELED
    store.ask(0, wire.wait_request([b"a", b"b"]))
    store.ask(1, wire.wait_request([b"a"]))
    assert store.ask(0, wire.cancel_wait_request()) == CANCELED
    assert store.state.stuck_waits() == [(b"a", 1)]
    assert store.wakes(2, wire.set_request(b"a", b"")) == [1]
    assert store.wakes(2, wire.set_request(b"b", b"")) == []
    assert store.wakes(0, wire.wait_request([b"c"])) == []
    assert store.wakes(2, wire.set_request(b"c", b"")) == [0]


def test_disconnect(store: Bench) -> None:
    store.state.disconnect("never seen")
    store.ask(0, wire.set_request(b"mine", b"v"))
    store.ask(0, wire.wait_request([b"a", b"b", b"a"]))
    store.ask(1, wire.wait_request([b"b"]))
    store.state.disconnect(0)
    assert store.state.stuck_waits() == [(b"b", 1)]
    store.state.disconnect(1)
    assert store.state.stuck_waits() == []
    assert store.wakes(2, wire.multi_set_request([(b"a", b""), (b"b", b"")])) == []
    assert store.ask(2, wire.get_request(b"mine")) == value(b"v")


def test_second_wait_overwrites(store: Bench) -> None:
    # As real servers do: one counter a connection, but the first key remains registered. Hence it
    # ends the second WAIT, and the second key finds nobody.
    store.ask(0, wire.wait_request([b"a"]))
    store.ask(0, wire.wait_request([b"b"]))
    assert store.wakes(1, wire.set_request(b"a", b"")) == [0]
    assert store.wakes(1, wire.set_request(b"b", b"")) == []
    store.ask(0, wire.wait_request([b"c"]))
    assert store.wakes(1, wire.set_request(b"c", b"")) == [0]


def test_disconnect_after_a_second_wait(store: Bench) -> None:
    store.ask(0, wire.wait_request([b"a", b"b"]))
    store.ask(0, wire.wait_request([b"c"]))
    assert store.wakes(1, wire.set_request(b"c", b"")) == [0]
    assert store.state.stuck_waits() == [(b"a", 1), (b"b", 1)]
    store.state.disconnect(0)
    assert store.state.stuck_waits() == []
    assert store.wakes(1, wire.set_request(b"a", b"")) == []


def test_waits_of_one_client_are_bounded() -> None:
    # Real servers have no bound.
    store = Bench(Limits(keys=100))
    with pytest.raises(RemoteProtocolError, match="waits for 102 keys"):  # noqa: PT012
        for i in range(0, 200, 3):
            store.ask(0, wire.wait_request([b"%d" % i, b"%d" % (i + 1), b"%d" % (i + 2)]))
    assert len(store.state.stuck_waits()) == 99
    store.state.disconnect(0)
    assert store.state.stuck_waits() == []


def test_what_is_kept_of_overwritten_waits_is_bounded(store: Bench) -> None:
    store.ask(0, wire.wait_request([b"never"]))
    for i in range(1_000):
        store.ask(0, wire.wait_request([b"%d" % i]))
        assert store.wakes(1, wire.set_request(b"%d" % i, b"")) == [0]
    assert len(store.state._waits[0].keys) < 10
    assert store.state.stuck_waits() == [(b"never", 1)]
    store.state.disconnect(0)
    assert store.state.stuck_waits() == []


def test_stuck_waits(store: Bench) -> None:
    store.ask(0, wire.wait_request([b"z", b"a"]))
    store.ask(1, wire.wait_request([b"m", b"m"]))
    store.ask(2, wire.wait_request([b"z"]))
    assert store.state.stuck_waits() == [(b"z", 2), (b"a", 1), (b"m", 1)]
    store.ask(3, wire.set_request(b"z", b""))
    assert store.state.stuck_waits() == [(b"a", 1), (b"m", 1)]


# BARRIER ----------------------------------------------------------------------------------------


def test_barrier(store: Bench) -> None:
    assert store.wakes(0, wire.barrier_request(b"b", 3)) == []
    assert store.wakes(1, wire.barrier_request(b"b", 3)) == []
    assert store.state.stuck_waits() == [(b"b", 2)]
    assert store.ask(2, wire.barrier_request(b"b", 3)) == STOP
    assert store.woken == [0, 1]
    assert store.ask(0, wire.barrier_request(b"b", 3)) == STOP  # it never starts again
    assert store.ask(0, wire.get_request(b"b")) == value(b"4")


def test_barrier_counter_is_a_key_from_the_first_arrival_on(store: Bench) -> None:
    store.ask("early", wire.wait_request([b"b"]))
    assert store.wakes(0, wire.barrier_request(b"b", 2)) == []
    assert store.ask(1, wire.check_request([b"b"])) == b"\0"
    assert store.ask("late", wire.wait_request([b"b"])) == STOP
    assert store.ask(1, wire.barrier_request(b"b", 2)) == STOP
    assert store.woken == ["early", 0]


def test_barrier_and_counter_are_one(store: Bench) -> None:
    store.ask(0, wire.add_request(b"b", 1))
    assert store.ask(1, wire.barrier_request(b"b", 2)) == STOP
    assert store.ask(0, wire.barrier_request(b"of none", 0)) == STOP
    store.ask(0, wire.barrier_request(b"c", 5))
    assert store.wakes(1, wire.set_request(b"c", b"x")) == [0]  # SET ends what waits for a key


def test_barrier_can_be_cancelled(store: Bench) -> None:
    store.ask(0, wire.barrier_request(b"b", 2))
    assert store.ask(0, wire.cancel_wait_request()) == CANCELED
    assert store.ask(1, wire.barrier_request(b"b", 2)) == STOP  # what arrived has arrived
    assert store.woken == []


# Queues -----------------------------------------------------------------------------------------


def test_queue_is_first_in_first_out(store: Bench) -> None:
    assert store.ask(0, wire.queue_len_request(b"q")) == i64(0)
    assert store.ask(0, wire.queue_pop_request(b"q")) == i64(0)
    for part in (b"1", b"", b"3"):
        assert store.ask(0, wire.queue_push_request(b"q", part)) == b""
    assert store.ask(0, wire.queue_len_request(b"q")) == i64(3)
    for left, part in ((3, b"1"), (2, b""), (1, b"3")):
        assert store.ask(1, wire.queue_pop_request(b"q")) == i64(left) + value(part)
    assert store.ask(0, wire.queue_pop_request(b"q")) == i64(0)
    assert store.ask(0, wire.check_request([b"q"])) == b"\1"


def test_queues_are_apart_from_values(store: Bench) -> None:
    store.ask(0, wire.queue_push_request(b"q", b"1"))
    assert store.ask(0, wire.get_request(b"q")) == value(b"")
    assert store.ask(0, wire.delete_request(b"q")) == i64(0)
    assert store.ask(0, wire.queue_len_request(b"q")) == i64(1)


def test_push_wakes_one(store: Bench) -> None:
    for client in range(3):
        store.ask(client, wire.wait_request([b"q"]))
    assert store.wakes(9, wire.queue_push_request(b"q", b"")) == [0]
    assert store.wakes(9, wire.queue_push_request(b"q", b"")) == [1]
    store.state.disconnect(2)
    assert store.wakes(9, wire.queue_push_request(b"q", b"")) == []
    assert store.state.stuck_waits() == []


def test_push_passes_who_waits_for_more(store: Bench) -> None:
    store.ask("both", wire.wait_request([b"q", b"z"]))
    store.ask("one", wire.wait_request([b"q"]))
    assert store.wakes(9, wire.queue_push_request(b"q", b"")) == ["one"]
    assert store.wakes(9, wire.set_request(b"z", b"")) == ["both"]


def test_push_counts_once_for_a_waiter(store: Bench) -> None:
    # libuv's server leaves the woken one registered: the second push would wake it for "other".
    store.ask(0, wire.wait_request([b"q"]))
    assert store.wakes(9, wire.queue_push_request(b"q", b"")) == [0]
    store.ask(0, wire.wait_request([b"other"]))
    assert store.wakes(9, wire.queue_push_request(b"q", b"")) == []
    assert store.wakes(9, wire.set_request(b"other", b"")) == [0]


def test_wait_takes_a_full_queue_for_there(store: Bench) -> None:
    # libuv's server would count "q" as missing, since "z" is.
    store.ask(9, wire.queue_push_request(b"q", b""))
    assert store.ask(0, wire.wait_request([b"q"])) == STOP
    store.ask(0, wire.wait_request([b"q", b"z"]))
    assert store.wakes(9, wire.set_request(b"z", b"")) == [0]
