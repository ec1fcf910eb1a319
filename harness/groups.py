"""Process groups beside the communicator of all ranks: tensor, pipeline, data parallel and so on.

What `--groups` says, as data: a grid, whose first dimension varies fastest, or lists of ranks from
a file. Who is in which group with whom is arithmetic; nothing here runs.
"""

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from emucoll.errors import UsageError

GroupInit: TypeAlias = Literal["new", "split", "ncclx"]
GROUP_INITS: tuple[GroupInit, ...] = ("new", "split", "ncclx")


class Membership(NamedTuple):
    """A rank's place in a kind of group."""

    group: int
    """Which of the kind's groups."""
    position: int
    """Its rank there."""
    members: Sequence[int]
    """The group's ranks of all, by their rank there."""


class Grid(msgspec.Struct, frozen=True, kw_only=True, tag_field="form", tag="grid"):
    """Groups along one dimension of a grid of ranks: those whose other coordinates are the same."""

    name: str
    size: int
    stride: int
    """Between two of a group."""
    count: int

    def members(self, index: int) -> Sequence[int]:
        """Of one group."""
        outer, inner = divmod(index, self.stride)
        first = outer * self.stride * self.size + inner
        return range(first, first + self.stride * self.size, self.stride)

    def of(self, rank: int) -> Membership:
        """A rank's place."""
        outer, rest = divmod(rank, self.stride * self.size)
        position, inner = divmod(rest, self.stride)
        index = outer * self.stride + inner
        return Membership(index, position, self.members(index))

    def places(self, ranks: range) -> dict[int, Membership]:
        """Those of some ranks."""
        return {rank: self.of(rank) for rank in ranks}


class Listed(msgspec.Struct, frozen=True, kw_only=True, tag_field="form", tag="listed"):
    """Groups as a file lists them. A rank that is in none takes no part."""

    name: str
    groups: tuple[tuple[int, ...], ...]

    @property
    def size(self) -> int:
        """Of the largest."""
        return max(map(len, self.groups))

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.groups)

    def members(self, index: int) -> Sequence[int]:
        """Of one group."""
        return self.groups[index]

    def places(self, ranks: range) -> dict[int, Membership]:
        """Those of some ranks; a rank that is in no group has none."""
        return {
            rank: Membership(index, position, members)
            for index, members in enumerate(self.groups)
            for position, rank in enumerate(members)
            if rank in ranks
        }


GroupKind: TypeAlias = Grid | Listed

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,31}", re.ASCII)
_DIMENSION = re.compile(r"(?P<name>[A-Za-z][A-Za-z0-9_-]{0,31})=(?P<size>\d{1,9})", re.ASCII)


def parse_groups(text: str) -> tuple[GroupKind, ...]:
    """`tp=8,pp=16,dp=32`, or the name of a JSON file {"tp": [[0, 1], [2, 3]], …}. Raises
    UsageError.
    """
    if not text.strip():
        raise UsageError(
            "--groups is empty: expected NAME=SIZE,…, as in tp=8,pp=16,dp=32, or a file"
        )
    parts = [part.strip() for part in text.split(",")]
    found = [match for match in map(_DIMENSION.fullmatch, parts) if match is not None]
    if len(found) == len(parts):
        return _grid([(match["name"], int(match["size"])) for match in found], text)
    if "=" in text and not Path(text).exists():
        raise UsageError(f"--groups {text!r}: expected NAME=SIZE,…, as in tp=8,pp=16,dp=32")
    return _listed(Path(text))


def _grid(dimensions: list[tuple[str, int]], text: str) -> tuple[GroupKind, ...]:
    names = [name for name, _ in dimensions]
    if len(set(names)) < len(names):
        raise UsageError(f"--groups {text!r}: a kind of group is named twice")
    if any(size < 1 for _, size in dimensions):
        raise UsageError(f"--groups {text!r}: sizes are 1 and more")
    total = math.prod(size for _, size in dimensions)
    kinds, stride = [], 1
    for name, size in dimensions:
        kinds.append(Grid(name=name, size=size, stride=stride, count=total // size))
        stride *= size
    return tuple(kinds)


def _kinds(data: bytes) -> dict[str, list[list[int]]]:
    """Lists of ranks by kind. Raises ValueError for a kind that is there twice, or no JSON."""

    def without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"{twice!r} stands there twice")
        return dict(pairs)

    read = json.loads(data, object_pairs_hook=without_doubles)
    return msgspec.convert(read, dict[str, list[list[int]]])


def _listed(path: Path) -> tuple[GroupKind, ...]:
    try:
        kinds = _kinds(path.read_bytes())
    except OSError as error:
        raise UsageError(
            f"--groups {str(path)!r}: neither NAME=SIZE,… nor a file: {error.strerror}"
        ) from None
    except (msgspec.MsgspecError, ValueError) as error:
        raise UsageError(
            f'--groups {path}: expected JSON such as {{"tp": [[0, 1], [2, 3]]}}: {error}'
        ) from None
    for name, groups in kinds.items():
        if not _NAME.fullmatch(name):
            raise UsageError(f"--groups {path}: {name!r} is no name for a kind of group, as tp is")
        if not groups or not all(groups):
            raise UsageError(f"--groups {path}: {name!r} has no group, or one without ranks")
    if not kinds:
        raise UsageError(f"--groups {path}: no groups")
    return tuple(
        Listed(name=name, groups=tuple(map(tuple, groups))) for name, groups in kinds.items()
    )


def check_groups(kinds: tuple[GroupKind, ...], nranks: int) -> None:
    """Raise UsageError for sizes that do not multiply to `nranks`, ranks that are not there, and
    groups of a kind that overlap.
    """
    grid = [kind for kind in kinds if isinstance(kind, Grid)]
    if grid:
        product = math.prod(kind.size for kind in grid)
        if product != nranks:
            sizes = " × ".join(f"{kind.name} {kind.size}" for kind in grid)
            raise UsageError(
                f"--groups: {sizes} = {product}, and there are {nranks} ranks: sizes multiply to "
                "them"
            )
    for kind in kinds:
        if isinstance(kind, Listed):
            _check_listed(kind, nranks)


def _check_listed(kind: Listed, nranks: int) -> None:
    seen: dict[int, int] = {}
    for index, members in enumerate(kind.groups):
        for rank in members:
            if not 0 <= rank < nranks:
                raise UsageError(
                    f"--groups: {kind.name} group {index} has rank {rank}, which is none of 0 to "
                    f"{nranks - 1}"
                )
            if rank in seen:
                other = f"groups {seen[rank]} and {index}"
                where = other if seen[rank] != index else f"group {index} twice"
                raise UsageError(
                    f"--groups: rank {rank} is in {kind.name} {where}: groups of a kind must not "
                    "overlap"
                )
            seen[rank] = index


def format_groups(kinds: tuple[GroupKind, ...]) -> str:
    """As a result shows them."""
    return ",".join(
        f"{kind.name}={kind.size}" if isinstance(kind, Grid) else f"{kind.name}:{kind.count} groups"
        for kind in kinds
    )
