"""What this machine can do at best, by PyTorch's own products: prints GFLOP/s as JSON, with `ranks` also how many
times the products of one process two of them make at once; with `quick`, of products too small to tell. Run by the
peers' Python."""

import json
import multiprocessing
import statistics
import sys
import time

import torch

SIZE = 2048  # of the matrices, and the least: where a product takes longer than it should, they are halved
LEAST_SIZE = 256
MOST_SECONDS = 0.02 if "quick" in sys.argv[1:] else 0.5
RANKS_SIZE = 1024
RANKS_SECONDS = 1.0


def seconds_of(size: int, dtype: torch.dtype, times: int) -> list[float]:
    a, b = (torch.randn(size, size).to(dtype) for _ in range(2))
    seconds = []
    for _ in range(times):
        begin = time.perf_counter()
        a @ b
        seconds.append(time.perf_counter() - begin)
    return seconds


def gflops(dtype: torch.dtype) -> float:
    """A processor without instructions for bfloat16 takes minutes for a large product of it."""
    size = LEAST_SIZE
    while size < SIZE and 8 * min(seconds_of(size, dtype, 2)) < MOST_SECONDS:
        size *= 2
    return 2 * size**3 / statistics.median(seconds_of(size, dtype, 7)[2:]) / 1e9


def rank(begin, speed) -> None:
    """One thread's float32 products for a second, from when all ranks are ready."""
    torch.set_num_threads(1)
    a, b = (torch.randn(RANKS_SIZE, RANKS_SIZE) for _ in range(2))
    a @ b
    begin.wait()
    start, products = time.perf_counter(), 0
    while time.perf_counter() - start < RANKS_SECONDS:
        a @ b
        products += 1
    speed.put(products / (time.perf_counter() - start))


def speed_of_ranks(ranks: int) -> float:
    fork = multiprocessing.get_context("fork")  # before this process has threads of its own
    begin, speed = fork.Barrier(ranks), fork.Queue()
    processes = [fork.Process(target=rank, args=(begin, speed)) for _ in range(ranks)]
    for process in processes:
        process.start()
    total = sum(speed.get(timeout=60) for _ in processes)
    for process in processes:
        process.join()
    return total


found = {"two_over_one": speed_of_ranks(2) / speed_of_ranks(1)} if "ranks" in sys.argv[1:] else {}
print(json.dumps(found | {"fp32": gflops(torch.float32), "bf16": gflops(torch.bfloat16), "threads": torch.get_num_threads()}))
