"""For a Python that has torch: its TCPStore client, each operation, on the store at HOST PORT."""

import sys
from datetime import timedelta

from torch.distributed import DistStoreError, TCPStore


def expect(what: str, got: object, expected: object) -> None:
    if got != expected:
        raise SystemExit(f"{what}: got {got!r}, expected {expected!r}")


def main(host: str, port: int) -> None:
    store = TCPStore(
        host, port, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=20)
    )
    store.set("a", "hello")
    expect("get", store.get("a"), b"hello")
    expect("add", [store.add("n", 5), store.add("n", -7)], [5, -2])
    expect("check", [store.check(["a"]), store.check(["a", "none"])], [True, False])
    expect("compare_set", store.compare_set("a", "hello", "there"), b"there")
    expect("compare_set of another", store.compare_set("a", "x", "y"), b"there")
    expect("compare_set of none", store.compare_set("c", "", "new"), b"new")
    store.append("a", "!")
    expect("append", store.get("a"), b"there!")
    store.multi_set(["k1", "k2"], ["v1", "v2"])
    expect("multi_get", store.multi_get(["k1", "k2", "a"]), [b"v1", b"v2", b"there!"])
    expect("delete_key", [store.delete_key("k1"), store.delete_key("k1")], [True, False])
    expect("num_keys", store.num_keys(), 4)  # a n c k2
    store.wait(["a", "k2"])
    try:
        store.wait(["never"], timedelta(milliseconds=300))
    except DistStoreError:
        pass
    else:
        raise SystemExit("wait: came back though nobody set the key")
    expect("after a wait that was cancelled", store.get("k2"), b"v2")
    large = bytes(range(256)) * 4096
    store.set("large", large.decode("latin-1").encode("latin-1"))
    expect("a large value", store.get("large"), large)
    keys = [f"many-{index}" for index in range(1000)]
    store.multi_set(keys, [str(index) for index in range(1000)])
    expect("many keys", store.multi_get(keys), [b"%d" % index for index in range(1000)])
    if hasattr(store, "queue_push"):
        store.queue_push("q", "one")
        store.queue_push("q", "two")
        expect("queue_len", store.queue_len("q"), 2)
        expect("queue_pop", [store.queue_pop("q"), store.queue_pop("q")], [b"one", b"two"])
    if hasattr(store, "list_keys"):
        expect("list_keys", sorted(store.list_keys())[:3], ["a", "c", "k2"])
    sys.stdout.write("every answer as expected\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
