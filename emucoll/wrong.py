"""A block that came wrong: what the driver notes, workers tell and results list."""

from typing import NamedTuple


class Wrong(NamedTuple):
    """A block that came wrong."""

    rank: int
    """Who received it."""
    block: int
    what: str
    """What differs."""
    peer: int
    """The rank that sent it."""
    step: int
    """In which round."""
