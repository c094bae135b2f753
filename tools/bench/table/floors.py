"""What this machine can do at best, by PyTorch's own products: prints GFLOP/s as JSON. Run by the peers' Python."""

import json
import statistics
import time

import torch

SIZE = 2048


def gflops(dtype: torch.dtype) -> float:
    a, b = (torch.randn(SIZE, SIZE).to(dtype) for _ in range(2))
    seconds = []
    for _ in range(7):
        begin = time.perf_counter()
        a @ b
        seconds.append(time.perf_counter() - begin)
    return 2 * SIZE**3 / statistics.median(seconds[2:]) / 1e9


print(json.dumps({"fp32": gflops(torch.float32), "bf16": gflops(torch.bfloat16), "threads": torch.get_num_threads()}))
