"""For a Python that has torch: N processes that init gloo through the store at HOST PORT and sum
their ranks.
"""

import sys
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def be(rank: int, host: str, port: int, nranks: int) -> None:
    store = dist.TCPStore(
        host, port, nranks, is_master=False, timeout=timedelta(seconds=60), wait_for_workers=True
    )
    dist.init_process_group("gloo", store=store, rank=rank, world_size=nranks)
    total = torch.tensor([rank])
    dist.all_reduce(total)
    sys.stdout.write(f"{int(total)}\n")
    sys.stdout.flush()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(be, (sys.argv[1], int(sys.argv[2]), int(sys.argv[3])), nprocs=int(sys.argv[3]))
