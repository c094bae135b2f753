"""Samples a second of recipes/mnist_cnn.yaml on 1, 2 and 4 ranks of this machine, beside what `explain --world-size` foresees: see README.md."""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
RECIPE = "recipes/mnist_cnn.yaml"
BATCH_SIZE = 32  # of each rank

# Two ranks sum eight bytes, and four million, again and again; the seconds of one sum each, as ProcessGroup's Gloo takes them.
LINK = """
import sys, time, statistics, torch, torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=int(sys.argv[2]), world_size=2)
for numel in (2, 1_000_000):
    tensor, seconds = torch.zeros(numel), []
    for _ in range(60):
        dist.barrier()
        begin = time.perf_counter()
        dist.all_reduce(tensor)
        seconds.append(time.perf_counter() - begin)
    if sys.argv[2] == "0":
        print(statistics.median(seconds[10:]))
dist.destroy_process_group()
"""


def run(command: list, **more) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, cwd=ROOT, **more)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def measure_link(python) -> tuple[float, float]:
    """Latency in seconds, and bytes a second: of 2 ranks, 2 latency + bytes / bandwidth."""
    with tempfile.TemporaryDirectory() as folder:
        ranks = [subprocess.Popen([python, "-c", LINK, f"{folder}/store", str(rank)], stdout=subprocess.PIPE, text=True) for rank in (0, 1)]
        small, large = (float(line) for line in ranks[0].communicate()[0].split())
        ranks[1].communicate()
    return small / 2, 4e6 / (large - small)


def data_overrides(data: pathlib.Path) -> list[str]:
    if (data / "mnist").is_dir():
        return []
    return ["dataset={train: {type: Synthetic, num_samples: 60000, shape: [1, 28, 28]}, eval: null}", "metrics=[]"]


def samples_per_second(arguments, ranks: int) -> float:
    """Of all ranks together, each with a thread; without the first hundred steps."""
    kind = "NO" if ranks == 1 else arguments.kind
    with tempfile.TemporaryDirectory() as folder:
        command = [arguments.binary, "--quiet", RECIPE, f"output_dir={folder}/run", f"distributed_type={kind}", f"num_processes={ranks}",
                   *arguments.common]
        run(command, env=os.environ | {"TRAINRUN_DATA": str(arguments.data), "OMP_NUM_THREADS": "1"})
        lines = [json.loads(line) for line in pathlib.Path(folder, "run", "metrics.jsonl").read_text().splitlines()]
    first, last = lines[0], lines[-1]
    return (last["step"] - first["step"]) * BATCH_SIZE * ranks / (last["time"] - first["time"])


def foreseen(arguments, ranks: int, sample_seconds: float, latency: float, bandwidth: float) -> dict:
    command = [arguments.binary, "explain", RECIPE, "--json", f"distributed_type={arguments.kind}", *arguments.common, "--world-size", ranks,
               "--ranks-per-node", ranks, "--compute-ms-per-sample", 1e3 * sample_seconds, "--latency-intra", 1e6 * latency,
               "--bandwidth-intra", bandwidth / 1e9]
    return json.loads(run(command))["seconds"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--kind", choices=["MULTI_CPU", "FSDP"], default="MULTI_CPU")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--binary", default=ROOT / "build" / "release" / "bin" / "trainrun", type=pathlib.Path)
    parser.add_argument("--python", default=ROOT / ".deps" / "python" / "bin" / "python", type=pathlib.Path)
    parser.add_argument("--data", default=os.environ.get("TRAINRUN_DATA", "data"), type=pathlib.Path, help="the folder that holds mnist/")
    arguments = parser.parse_args()
    arguments.data = arguments.data.resolve()
    arguments.binary = arguments.binary.resolve()
    arguments.common = [f"training={{num_epochs: null, max_steps: {arguments.steps}}}", "scheduler=null", "evaluation.every=null",
                        "checkpoint={every: null, keep_best: null}", f"dataloader={{batch_size: {BATCH_SIZE}, num_workers: 0}}",
                        "logging.every_steps=100", *data_overrides(arguments.data)]

    cores = len(os.sched_getaffinity(0))
    print(f"{cores} processors; {BATCH_SIZE} samples a rank and step, a thread a rank; {arguments.kind}; load: of the last minute, before")
    links, rates = [], {ranks: [] for ranks in arguments.ranks}
    for repetition in range(arguments.repetitions):
        load = os.getloadavg()[0]
        links.append(measure_link(arguments.python))
        for ranks in arguments.ranks[:: 1 if repetition % 2 == 0 else -1]:
            rates[ranks].append(samples_per_second(arguments, ranks))
        shown = "  ".join(f"{ranks}: {values[-1]:,.0f}/s" for ranks, values in rates.items())
        print(f"{repetition + 1}  {shown}  load {load:.1f}", flush=True)

    latency, bandwidth = (statistics.median(values) for values in zip(*links))
    print(f"\nlink between two ranks: {1e6 * latency:.0f} us, {bandwidth / 1e9:.2f} GB/s")
    one = statistics.median(rates[arguments.ranks[0]]) / arguments.ranks[0]
    print("ranks  samples/s (min / median / max)   times one rank   foreseen samples/s")
    for ranks, values in rates.items():
        busy = max(1.0, ranks / cores)  # ranks that share a core compute in turns
        seconds = foreseen(arguments, ranks, busy / one, latency, bandwidth)
        ratios = [value / base for value, base in zip(values, rates[arguments.ranks[0]])]
        print(f"{ranks:5}  {min(values):,.0f} / {statistics.median(values):,.0f} / {max(values):,.0f}   "
              f"{statistics.median(ratios):.2f}   {seconds['samples_per_second']:,.0f}")


if __name__ == "__main__":
    main()
