"""Records of 28 bytes are the addresses that the workers published, in rank order."""

import asyncio

import pytest

from harness.control.controller import Controller, Placement
from harness.spec import Spec

SHARES = tuple(range(2 * index, 2 * index + 2) for index in range(12))


@pytest.mark.parametrize("record_bytes", [27, 28, 29])
def test_addresses_are_records(record_bytes: int) -> None:
    spec = Spec(nranks=24, record_bytes=record_bytes)

    async def main() -> bytes | None:
        controller = Controller(spec, Placement(SHARES, None), lambda _: None, lambda _: None)
        for index in reversed(range(12)):  # in whatever order they came
            controller._addresses[f"worker {index}"] = b"%02d" % index
        return controller._published()

    expected = b"".join(b"%02d" % index for index in range(12))
    assert asyncio.run(main()) == (expected if record_bytes == 28 else None)
