"""Writes wine.csv and breast_cancer.csv.gz beside itself from what scikit-learn carries: `.deps/python/bin/python recipes/data/make_tables.py`.

A header with the columns' names, then scikit-learn's rows; the class last.
"""

import csv
import gzip
import io
import pathlib

import sklearn.datasets


def table(bunch, target_name):
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([name.replace(" ", "_").replace("/", "_") for name in bunch.feature_names] + [target_name])
    for row, target in zip(bunch.data.tolist(), bunch.target.tolist()):
        writer.writerow([f"{value:.10g}" for value in row] + [target])
    return text.getvalue()


if __name__ == "__main__":
    folder = pathlib.Path(__file__).parent
    (folder / "wine.csv").write_text(table(sklearn.datasets.load_wine(), "cultivar"))
    text = table(sklearn.datasets.load_breast_cancer(), "benign")
    (folder / "breast_cancer.csv.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))
