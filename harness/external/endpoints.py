"""Servers that somebody else has started: where they are, as `--root` and `--store` say.

Ranks have loopback addresses, and so must whom they connect to.
"""

import ipaddress
import socket
from pathlib import Path

from emucoll.errors import UsageError
from emucoll.wire.address import Address
from emucoll.wire.nccl import DEFAULT_COMM_MAGIC, UNIQUE_ID_BYTES, UniqueId
from harness.spec import Spec, is_endpoint

_LISTENS = "0A"
"""The state of a listener in /proc/net/tcp."""


def external_store(spec: Spec) -> Address | None:
    """The store's address, if `--store` gives one. Raises UsageError."""
    return _address("--store", spec.store) if is_endpoint(spec.store) else None


def external_root(spec: Spec) -> UniqueId | None:
    """The root's unique id, if `--root` gives its address: with the magic of the `--unique-id`
    file, else with the one that NCCL uses where NCCL_COMM_ID names the root. Raises UsageError.
    """
    if not is_endpoint(spec.root):
        return None
    address = _address("--root", spec.root)
    if spec.unique_id is None:
        return UniqueId(DEFAULT_COMM_MAGIC, address)
    return UniqueId(_read_id(spec.unique_id).magic, address)


def refuse_nobody(spec: Spec) -> None:
    """Raise UsageError where nobody listens at the address of a server that should run already.

    The kernel is asked, not the server: up to NCCL 2.23.4 a root does not survive a peer that
    connects and leaves.
    """
    for flag, server in (("--root", spec.root), ("--store", spec.store)):
        if is_endpoint(server) and not _somebody_listens(_address(flag, server)):
            raise UsageError(f"{flag} {server}: nobody listens there: start it first")


def _somebody_listens(address: Address) -> bool:
    """As far as the kernel's tables tell; True where they cannot be read."""
    port = f"{address.port:04X}"
    ours = {f"{_in_table(ip)}:{port}" for ip in (address.host, "0.0.0.0", "::")}
    if not address.is_ipv6:  # of a listener for both families
        ours.add(f"{_in_table(f'::ffff:{address.host}')}:{port}")
    try:
        for table in ("/proc/net/tcp", "/proc/net/tcp6"):
            with open(table) as lines:
                next(lines)
                for line in lines:
                    words = line.split()
                    if words[3] != _LISTENS:  # listeners come first, and connections may be many
                        break
                    if words[1] in ours:
                        return True
    except (OSError, StopIteration):
        return True
    return False


def _in_table(ip: str) -> str:
    """As /proc/net/tcp and tcp6 write it: words of the host's byte order."""
    packed = ipaddress.ip_address(ip).packed
    return "".join(packed[at : at + 4][::-1].hex().upper() for at in range(0, len(packed), 4))


def external_servers(spec: Spec) -> set[str]:
    """Which of "root" and "store" somebody else has started."""
    return {name for name in ("root", "store") if is_endpoint(getattr(spec, name))}


def _read_id(path: str) -> UniqueId:
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"--unique-id {path}: {error.strerror}") from None
    if len(data) != UNIQUE_ID_BYTES:
        try:
            data = bytes.fromhex(data.decode())
        except ValueError:
            pass
    if len(data) != UNIQUE_ID_BYTES:
        raise UsageError(
            f"--unique-id {path}: {len(data)} bytes, and a unique id has {UNIQUE_ID_BYTES}: as "
            "they are, or in hexadecimal"
        )
    return UniqueId.unpack(data)


def _address(flag: str, text: str) -> Address:
    host, _, port = text.rpartition(":")
    number = int(port)
    if not 0 < number < 65_536:
        raise UsageError(f"{flag} {text}: there is no port {number}")
    try:
        found = socket.getaddrinfo(host.strip("[]"), number, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        raise UsageError(f"{flag} {text}: {error.strerror}") from None
    ip = ipaddress.ip_address(found[0][4][0])
    if not ip.is_loopback:
        raise UsageError(
            f"{flag} {text}: ranks have loopback addresses and reach no other: give one of this "
            "machine's, such as 127.0.0.1"
        )
    return Address(str(ip), number)
