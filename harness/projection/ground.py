"""The ground that a projection stands on: runs that the model did not see, and how far off it was.

Results of `emucoll validate`: those that emucoll brings along, and the user's. Only the latency-
bound ones count, which is the regime of a cluster.
"""

from importlib.resources import files
from pathlib import Path
from statistics import median

from emucoll.collectives import ALLGATHERS
from emucoll.collectives.schedule import Schedule
from emucoll.errors import Undecided, UsageError
from emucoll.formation import FORMATIONS
from emucoll.formation.base import Formation
from emucoll.loading import find_plan
from harness.projection.spec import ProjectSpec
from harness.results.codec import decode
from harness.results.projection import Ground
from harness.results.validation import ValidatedPoint, ValidateResult
from harness.validation.spec import LATENCY_BOUND

WHOLES = ("formation", "step")
"""What counts: not the phases of a formation, which are parts of the whole."""


def formation_part(formation: Formation) -> str:
    """What a formation is called here: a user's by its class, whatever name it has."""
    kind = type(formation)
    if any(type(each) is kind for each in FORMATIONS.values()):
        return formation.name
    return f"{kind.__module__}:{kind.__qualname__}"


def allgather_part(schedule: Schedule) -> str:
    """What an AllGather is called here: a user's is told apart from ours of that name."""
    return schedule.name if schedule in ALLGATHERS.values() else f"own {schedule.name}"


def parts_of(plan: str) -> list[str]:
    """What of a plan a validation can check: its formation and its AllGathers."""
    found = find_plan(plan)
    schedules = (allgather_part(gather.schedule) for gather in found.gathers)
    return list(dict.fromkeys((formation_part(found.formation), *schedules)))


def find_ground(spec: ProjectSpec) -> list[Ground]:
    """For each part of the plans. Raises Undecided where one was never checked, UsageError for a
    file that is no validation.
    """
    points = [
        point
        for point in _points(spec.validation)
        if point.regime == LATENCY_BOUND and point.phase in WHOLES
    ]
    grounds = []
    for part in dict.fromkeys(part for plan in spec.plan for part in parts_of(plan)):
        of_part = [point for point in points if part in (point.formation, point.allgather)]
        if not of_part:
            users = [plan for plan in spec.plan if part in parts_of(plan)]
            raise Undecided(
                f"{', '.join(users)}: the model of {part} was never checked against a run, and "
                f"what it says would have no ground: emucoll validate --regime latency-bound "
                f"{_flag(part, users[0])} --out FILE, then --validation FILE here"
            )
        grounds.append(
            Ground(
                part=part,
                points=len(of_part),
                largest_n=max(point.n for point in of_part),
                error=median(abs(point.error) for point in of_part),
                worst=max(abs(point.error) for point in of_part),
            )
        )
    return grounds


def _flag(part: str, plan: str) -> str:
    if formation_part(find_plan(plan).formation) == part:
        return f"--formation {part}"
    return f"--allgather {part if part in ALLGATHERS else 'MODULE:NAME'}"


def _points(more: tuple[str, ...]) -> list[ValidatedPoint]:
    points = []
    for each in files("profiles").joinpath("validation").iterdir():
        if each.name.endswith(".json"):
            points += decode(each.read_bytes(), ValidateResult).points
    for name in more:
        try:
            points += decode(Path(name).read_bytes(), ValidateResult).points
        except OSError as error:
            raise UsageError(f"--validation {name}: {error.strerror}") from None
        except UsageError as error:
            raise UsageError(f"--validation {name}: {error}") from None
    return points
