"""Draws the plots of growth: `plots.py JSON FOLDER`; prints the files. Run by the peers' Python with matplotlib in its path."""

import json
import pathlib
import sys

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "trainrun"  # the same figures give the same file
matplotlib.rcParams["svg.fonttype"] = "none"
from matplotlib import pyplot, ticker  # noqa: E402

LABELS = {"batch": "samples in a batch", "data": "times 600 images", "ranks": "ranks", "width": "channels", "depth": "layers"}

for series, plot in json.loads(sys.argv[1]).items():
    figure, axes = pyplot.subplots(figsize=(6, 3.5))
    for program, points in plot["lines"].items():
        points.sort()
        axes.plot([x for x, _ in points], [value * plot["scale"] for _, value in points], marker="o", label=program)
    ticks = sorted({x for points in plot["lines"].values() for x, _ in points})
    if series != "ranks":
        axes.set_xscale("log", base=10 if series == "data" else 2)
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(lambda y, _: f"{y:,g}")
    else:
        axes.set_ylim(bottom=0)
    axes.set_xticks(ticks, [f"{x:g}" for x in ticks])
    axes.minorticks_off()
    axes.set_xlabel(LABELS.get(series, series))
    axes.set_ylabel(plot["unit"])
    axes.set_title(plot["title"], fontsize=10)
    axes.grid(True, alpha=0.3)
    axes.legend()
    path = pathlib.Path(sys.argv[2], f"{series}.svg")
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})
    pyplot.close(figure)
    print(path)
