"""What was measured on another side of a threshold than the target's says nothing of it."""

from harness.profiling.measure import Metric, Series, beyond_thresholds
from harness.profiling.spec import ProfileSpec

DELAY = Metric("rank", "bootstrap.delay", "cpu")
SEND = Metric("rank", "bootstrap.send", "cpu")
STORE = Metric("store", "serve", "cpu")
SIZES = (64, 128, 256, 512, 1024)


def kept(plan: str) -> Series:
    spec = ProfileSpec(n=SIZES, target=98_304, plan=plan)
    each = {n: [float(n)] for n in SIZES}
    return beyond_thresholds(spec, {DELAY: dict(each), SEND: dict(each), STORE: dict(each)})


def test_nobody_staggers_up_to_128_ranks_in_2_22() -> None:
    found = kept("nccl-2.22.3")
    assert list(found[DELAY]) == [256, 512, 1024]
    assert list(found[SEND]) == list(SIZES)


def test_nor_up_to_256_since() -> None:
    assert list(kept("nccl-2.27.7")[DELAY]) == [512, 1024]


def test_with_a_root_for_128_ranks_never() -> None:
    found = kept("nccl-2.27.7+multiroot")
    assert list(found[DELAY]) == list(SIZES)
    assert list(found[STORE]) == [256, 512, 1024]


def test_above_128_ranks_pytorch_fetches_several_ids() -> None:
    assert list(kept("pytorch")[STORE]) == [256, 512, 1024]


def test_a_ring_through_a_store_knows_no_threshold() -> None:
    assert kept("ncclx")[STORE] == {n: [float(n)] for n in SIZES}
