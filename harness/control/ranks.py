"""What is told of ranks, in whichever world they run: whom one waits for, how one failed, and the
phases that lie outside an initialization.
"""

import traceback

from emucoll.errors import ConnectionClosed, EmucollError, NetworkError, RemoteProtocolError
from emucoll.loading import told
from emucoll.rank import Rank
from harness.control.messages import NO_PEER, PEER_ALL, PEER_ROOT, PEER_STORE, RankFailed

NEVER_STARTED = "never-started"
EXTERNAL = "external"
ADMISSION = "admission"
START_SKEW = "start-skew"
_PEERS: dict[object, int] = {None: NO_PEER, "root": PEER_ROOT, "store": PEER_STORE, "all": PEER_ALL}


def peer_of(rank: Rank) -> int:
    """Whom it may wait for: a rank, or one of the messages' constants."""
    return rank.peer if isinstance(rank.peer, int) else _PEERS[rank.peer]


def rank_failed(rank: Rank, error: BaseException) -> RankFailed:
    """How, where, and before whom."""
    kind = (
        "closed"
        if isinstance(error, ConnectionClosed)
        else "network"
        if isinstance(error, NetworkError)
        else "protocol"
        if isinstance(error, RemoteProtocolError)
        else "raised"
    )
    return RankFailed(
        rank=rank.rank,
        phase=rank.trace.names[rank.phase],
        peer=peer_of(rank),
        kind=kind,
        what=str(error) if isinstance(error, EmucollError) else _where(error),
    )


def _where(error: BaseException) -> str:
    """An exception that is not ours: what, where it was raised, and at which line of the user's if
    that is another.
    """
    frames = traceback.extract_tb(error.__traceback__)
    last = f" at {frames[-1].filename}:{frames[-1].lineno} in {frames[-1].name}" if frames else ""
    theirs = told(error).partition(": ")[0].removeprefix(" at ")
    by = f", called at {theirs}" if theirs and theirs not in last else ""
    return f"{type(error).__name__}: {error}{last}{by}"
