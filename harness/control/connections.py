"""One side of many connections over loopback, and the CPU that it takes:
`python -m harness.control.connections accept SOURCE COUNT`, or `connect SOURCE`.

Each side is a process, which reads its own clock, and works as ranks do: with emucoll's own
network, on the workers' event loop, from a source address of its own, each listener taking one
connection. The accepting side prints the addresses of its listeners, which the other reads; each
then prints the seconds of CPU that one connection took it, and leaves when its stdin ends.
"""

import asyncio
import json
import sys

from emucoll.net.base import Address
from emucoll.net.tcp import TcpNetwork
from harness.control.helper import begin, tell
from harness.control.loops import run_loop
from harness.usage import cpu_s

DEADLINE_S = 60.0
"""For all connections together."""


async def accept(source: str, count: int) -> None:
    """Accept `count` connections, each on a listener of its own."""
    network = TcpNetwork(source)
    listeners = [network.listen() for _ in range(count)]
    before = cpu_s()
    accepting = [asyncio.create_task(listener.accept()) for listener in listeners]
    await asyncio.sleep(0)  # all of them wait now, as ranks do
    spent_s = cpu_s() - before
    tell([listener.address for listener in listeners])
    before = cpu_s()
    async with asyncio.timeout(DEADLINE_S):
        await asyncio.gather(*accepting)
    tell((spent_s + cpu_s() - before) / count)
    sys.stdin.read()
    network.close()


async def connect(source: str) -> None:
    """Connect to each of the addresses that come on stdin."""
    network = TcpNetwork(source)
    addresses = [Address(*each) for each in json.loads(sys.stdin.readline())]
    before = cpu_s()
    for address in addresses:
        await network.connect(address, DEADLINE_S)
    tell((cpu_s() - before) / len(addresses))
    sys.stdin.read()
    network.close()


async def main(_loop_name: str) -> None:
    """The side that the command line says."""
    side, source, *count = sys.argv[1:]
    if side == "accept":
        await accept(source, int(count[0]))
    else:
        await connect(source)


if __name__ == "__main__":
    begin()
    run_loop(main, is_server=False)
