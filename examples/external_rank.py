r"""A rank of your own program in an emulated communicator: NCCL's bootstrap from scratch.

It stands for a rank of yours, in any language: nothing of emucoll is imported. Start the others,

    emucoll run -np 1024 --formation nccl-root --allgather ring --record-bytes 64 --steps 100 \
        --external-ranks 3 --out out/external

and, while they wait for it, this one, with rank, bytes of a record and steps (all, unless given):

    python examples/external_rank.py out/external/rendezvous.json 3 64 100

It checks in with the root, forms the ring with its neighbours and runs NCCL's unidirectional ring
AllGather (up to 2.28.6): sizes first, then data.
"""

import json
import socket
import struct
import sys
import time

HELLO = struct.Struct("<Qi")
BOOTSTRAP = 1


def pack_address(host: str, port: int) -> bytes:
    """28 bytes: a sockaddr_in, padded."""
    return struct.pack("<H", socket.AF_INET) + struct.pack(">H4s20x", port, socket.inet_aton(host))


def unpack_address(data: bytes) -> tuple[str, int]:
    """Host and port of the 28 bytes."""
    (port,) = struct.unpack_from(">H", data, 2)
    return socket.inet_ntoa(data[4:8]), port


def receive(peer: socket.socket, count: int) -> bytes:
    """Exactly `count` bytes."""
    data = b""
    while len(data) < count:
        piece = peer.recv(count - len(data))
        if not piece:
            raise SystemExit(f"{peer.getpeername()} left after {len(data)} of {count} bytes")
        data += piece
    return data


def listen() -> socket.socket:
    """On a port of 127.0.0.1."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(60)
    return listener


def connect(address: tuple[str, int], magic: int) -> socket.socket:
    """A bootstrap connection."""
    peer = socket.create_connection(address, timeout=60)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    peer.sendall(HELLO.pack(magic, BOOTSTRAP))
    return peer


def accept(listener: socket.socket, magic: int) -> socket.socket:
    """The next bootstrap connection of this communicator."""
    while True:
        peer, _ = listener.accept()
        peer.settimeout(60)
        if HELLO.unpack(receive(peer, HELLO.size)) == (magic, BOOTSTRAP):
            return peer
        peer.close()


def wait_for(path: str) -> dict:
    """The file that `emucoll run --out` writes when the others start."""
    for _ in range(600):
        try:
            with open(path) as file:
                return json.load(file)
        except FileNotFoundError:
            time.sleep(0.1)
    raise SystemExit(f"{path} did not appear in a minute")


def main(path: str, rank: int, record_bytes: int, steps: int | None = None) -> None:
    """Be rank `rank`."""
    job = wait_for(path)
    n, magic = job["nranks"], int(job["magic"], 16)
    unique_id = bytes.fromhex(job["unique_ids"][0])
    (root_magic,) = struct.unpack_from("<Q", unique_id)

    ring, reply = listen(), listen()
    own = [pack_address(*listener.getsockname()) for listener in (reply, ring)]
    info_bytes = 28 if job["check_in_bytes"] == 64 else 128  # 64: NCCL 2.22 and before
    numbers = (rank, n, 0, 1, 0)[: (job["check_in_bytes"] - 28 - info_bytes) // 4]
    check_in = struct.pack(f"<{len(numbers)}i", *numbers) + own[0] + own[1].ljust(info_bytes, b"\0")
    with connect(unpack_address(unique_id[8:36]), root_magic) as root:
        root.sendall(struct.pack("<i", len(check_in)) + check_in)
    with accept(reply, root_magic) as root:
        (length,) = struct.unpack("<i", receive(root, 4))
        successor = unpack_address(receive(root, length))
    reply.close()
    following = connect(successor, magic)
    preceding = accept(ring, magic)

    records = {rank: bytes([rank % 256]) * record_bytes}
    size = struct.pack("<i", record_bytes)
    for step in range(n - 1 if steps is None else steps):
        following.sendall(size)
        if receive(preceding, 4) != size:
            raise SystemExit(f"step {step}: rank {(rank - 1) % n} sends records of another size")
        following.sendall(records[(rank - step) % n])
        records[(rank - step - 1) % n] = receive(preceding, record_bytes)
    sys.stdout.write(f"rank {rank} has the records of {len(records)} of {n} ranks\n")
    for each in (following, preceding, ring):
        each.close()


if __name__ == "__main__":
    if len(sys.argv) not in (4, 5):
        raise SystemExit(__doc__)
    try:
        main(sys.argv[1], *map(int, sys.argv[2:]))
    except OSError as error:
        raise SystemExit(f"the others went away, or did not come: {error}") from None
