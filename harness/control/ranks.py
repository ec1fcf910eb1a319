"""What is told of ranks, in whichever world they run: whom one waits for, how one failed, and the
phases that lie outside an initialization.
"""

import traceback

from emucoll.errors import ConnectionClosed, EmucollError, NetworkError, RemoteProtocolError
from emucoll.loading import told
from emucoll.rank import Rank
from emucoll.spans import SpanLog, peer_number
from emucoll.trace import Trace
from harness.control.messages import RankFailed, Spans

NEVER_STARTED = "never-started"
EXTERNAL = "external"
ADMISSION = "admission"
START_SKEW = "start-skew"


def spans_of(trace: Trace, spans: SpanLog, began: float) -> Spans:
    """All that a trace has kept, as it travels."""
    return Spans(names=trace.names, began=began, **spans.packed())


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
        peer=peer_number(rank.peer),
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
