"""A process that runs in virtual time what it is asked for, line by line: `python -m
harness.projection.worker FOLDER`. A user's own modules are looked for in FOLDER too.
"""

import json
import sys

import msgspec

from emucoll.errors import EmucollError, UsageError
from emucoll.loading import look_in
from harness.control.helper import begin, tell
from harness.projection.simulate import Answer, Request, simulate


def main() -> None:
    """Until stdin ends."""
    look_in(sys.argv[1])
    for line in sys.stdin:
        request = msgspec.convert(json.loads(line), Request)
        try:
            answer = Answer(times=simulate(request.task()))
        except EmucollError as error:
            answer = Answer(error=str(error), usage=isinstance(error, UsageError))
        tell(msgspec.to_builtins(answer))


if __name__ == "__main__":
    begin()
    main()
