"""Coroutine tests run inside their world."""

from tests.worlds import pytest_pyfunc_call, world

__all__ = ["pytest_pyfunc_call", "world"]
