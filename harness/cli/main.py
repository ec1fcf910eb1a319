"""Entry point of the command line: what must stand before anything else does.

Whatever happens, `--json` gives one document, and the exit code is one of the design's.
"""

import os
import signal
import sys
from types import FrameType

INTERRUPTED = 130
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def main() -> None:
    """Run the command that `sys.argv` holds; always ends by SystemExit."""
    _open_standard_streams()
    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup, or a shell's &: as it was
            signal.signal(number, _interrupt)
    # Importing takes long enough for a Ctrl-C, which waits: half an import can't be done again.
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    from harness.cli import commands

    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        commands.run_command()
    except KeyboardInterrupt:
        commands.fail("interrupted before there was a result", INTERRUPTED)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """Ctrl-C or SIGTERM outside a run: the first one counts."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _open_standard_streams() -> None:
    """Give a closed stdin, stdout or stderr to /dev/null: the next socket would take its number,
    and what is printed would go to a peer.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


if __name__ == "__main__":
    main()
