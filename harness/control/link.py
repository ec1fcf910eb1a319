"""A worker's or server's end of the control plane: one ZeroMQ DEALER to the controller.

It leaves when the controller is gone: a process that lost its controller has nobody to work for.
Knows nothing of what the messages mean.
"""

import asyncio
import os
import socket

import msgspec
import zmq
import zmq.asyncio
from zmq.utils.monitor import recv_monitor_message

from emucoll.errors import HarnessError
from harness.control.messages import PROTOCOL, AnyMessage, Hello, decode, encode

TOKEN_VARIABLE = "EMUCOLL_TOKEN"
"""The environment variable in which a started process finds the run's token."""
MAX_MESSAGE_BYTES = 256 * 1024 * 1024
REGISTRATION_S = 60.0
CONNECT_TRIES = 20
"""Refused connects, 0.1 s apart, until a controller that we never reached counts as gone."""
EXIT_CONTROLLER_LOST = 3


class Link:
    """Connected to the controller at `endpoint` ("tcp://127.0.0.1:4711") as `process`."""

    def __init__(self, endpoint: str, process: str, loop_name: str) -> None:
        """Connect and say hello."""
        self._context = zmq.asyncio.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.linger = 1000
        self._socket.sndhwm = self._socket.rcvhwm = 0
        self._socket.maxmsgsize = MAX_MESSAGE_BYTES
        self._socket.ipv6 = "[" in endpoint
        self._monitor = self._socket.get_monitor_socket(
            zmq.EVENT_DISCONNECTED | zmq.EVENT_CONNECT_RETRIED
        )
        self._watch = asyncio.create_task(self._leave_when_alone())
        self._socket.connect(endpoint)
        self._outbox: asyncio.Queue[bytes] = asyncio.Queue()
        self._writer = asyncio.create_task(self._write())
        self._registered = False
        token = os.environ.pop(TOKEN_VARIABLE, "")
        host = socket.gethostname()
        self.send(
            Hello(
                protocol=PROTOCOL,
                token=token,
                process=process,
                host=host,
                loop=loop_name,
            )
        )

    def send(self, message: AnyMessage) -> None:
        """Queue a message; never waits."""
        self._outbox.put_nowait(encode(message))

    async def receive(self) -> AnyMessage:
        """The controller's next message. Raises HarnessError when it does not take us in."""
        try:
            async with asyncio.timeout(None if self._registered else REGISTRATION_S):
                data = await self._socket.recv()
        except TimeoutError:
            raise HarnessError(
                f"the controller did not answer within {REGISTRATION_S:g} s"
            ) from None
        self._registered = True
        try:
            return decode(data)
        except msgspec.MsgspecError as error:
            raise HarnessError(f"the controller speaks another protocol: {error}") from None

    async def flush(self) -> None:
        """Wait until everything queued is in ZeroMQ's hands."""
        await self._outbox.join()

    async def _write(self) -> None:
        while True:
            data = await self._outbox.get()
            await self._socket.send(data)
            self._outbox.task_done()

    async def _leave_when_alone(self) -> None:
        tries = 0
        while tries < CONNECT_TRIES:
            event = (await recv_monitor_message(self._monitor))["event"]
            tries += 1 if event == zmq.EVENT_CONNECT_RETRIED else CONNECT_TRIES
        os._exit(EXIT_CONTROLLER_LOST)

    async def close(self) -> None:
        """Send what is queued and disconnect."""
        await self.flush()
        self._watch.cancel()
        self._writer.cancel()
        self._socket.disable_monitor()
        self._monitor.close(linger=0)
        self._socket.close()
        self._context.term()
