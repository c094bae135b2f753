"""The table of docs/guide/init.md: twelve data sets, each given to `trainrun init`, the recipe that it wrote trained as it stands,
and its figure on test data that neither saw beside that of a tuned peer: of tables scikit-learn's gradient boosting, linear models and nets,
each tuned by cross-validation on the same rows, the one that is best there; of others a recipe that comes with trainrun, or a known figure.

    TRAINRUN_BINARY=build/release/bin/trainrun TRAINRUN_DATA=../shared/data \
        .deps/python/bin/python -B tests/parity/init_table.py --work /tmp/init_table [NAME …]

Not part of CI: it takes minutes. Writes transcripts (NAME.txt) and table.md into --work.
"""

import argparse
import gzip
import json
import os
import pathlib
import re
import subprocess
import sys
import time
import warnings

import numpy as np
import pandas
import sklearn.datasets
from sklearn.compose import make_column_transformer, make_column_selector
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.metrics import accuracy_score, f1_score, r2_score
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BINARY = os.environ.get("TRAINRUN_BINARY", str(ROOT / "build/release/bin/trainrun"))
DATA = pathlib.Path(os.environ.get("TRAINRUN_DATA", ROOT / "data"))


def trainrun(folder, *arguments, log=None):
    done = subprocess.run([BINARY, *map(str, arguments)], cwd=folder, capture_output=True, text=True, check=False, env={**os.environ, "TRAINRUN_PLAIN_MKL": "1"})
    text = f"$ trainrun {' '.join(map(str, arguments))}\n{done.stdout}{done.stderr}"
    if log is not None:
        log.append(text)
    assert done.returncode == 0, text
    return done.stdout


# --- tables, each as (rows to learn from, rows to test on, target, what is measured)


def bunch(load):
    frame = load(as_frame=True).frame
    return frame.rename(columns=lambda name: re.sub(r"\W+", "_", str(name)))


def divided(frame, target, metric):
    strata = frame[target] if metric != "r2" else None
    train, test = train_test_split(frame, test_size=0.2, random_state=7, stratify=strata)
    return train, test, target, metric


def iris():
    frame = bunch(sklearn.datasets.load_iris)
    frame["species"] = frame.pop("target").map(dict(enumerate(["setosa", "versicolor", "virginica"])))
    return divided(frame, "species", "accuracy")


def wine():
    return divided(pandas.read_csv(ROOT / "recipes/data/wine.csv"), "cultivar", "accuracy")


def cancer():
    return divided(bunch(sklearn.datasets.load_breast_cancer), "target", "accuracy")


def diabetes():
    return divided(bunch(sklearn.datasets.load_diabetes), "target", "r2")


def cars():
    return divided(pandas.read_csv(ROOT / "recipes/data/cars.csv"), "mpg", "r2")


def weather():
    """In the order of time: the last fifth is the future."""
    frame = pandas.read_csv(ROOT / "recipes/data/seattle_weather.csv")
    tomorrow = frame.assign(tomorrow=frame["temp_max"].shift(-1)).dropna().drop(columns=["weather"])
    cut = len(tomorrow) * 4 // 5
    return tomorrow[:cut], tomorrow[cut:], "tomorrow", "r2"


def moons():
    x, y = sklearn.datasets.make_moons(1500, noise=0.25, random_state=3)
    noise = np.random.default_rng(3).normal(size=(1500, 6))
    frame = pandas.DataFrame(np.hstack([x, noise]).round(4), columns=["x0", "x1", *(f"noise{i}" for i in range(6))])
    return divided(frame.assign(side=np.where(y == 1, "upper", "lower")), "side", "accuracy")


def rare():
    """One in twelve, with categories and missing values."""
    x, y = sklearn.datasets.make_classification(3000, 10, n_informative=6, weights=[0.92], class_sep=1.2, random_state=5)
    frame = pandas.DataFrame(x.round(4), columns=[f"m{i}" for i in range(10)])
    draw = np.random.default_rng(5)
    frame["city"] = np.where(draw.random(3000) < 0.7, np.where(x[:, 0] > 0, "Bern", "Oslo"), "Rome")
    frame.loc[draw.random(3000) < 0.05, "m3"] = np.nan
    frame.insert(0, "customer_id", np.arange(10000, 13000))
    return divided(frame.assign(fraud=np.where(y == 1, "yes", "no")), "fraud", "f1")


TABLES = {"iris": iris, "wine": wine, "breast cancer": cancer, "diabetes": diabetes, "cars": cars, "weather by date": weather, "moons and noise": moons, "rare class": rare}


def tuned_peer(train, test, target, metric):
    """The best of three scikit-learn models by five-fold cross-validation over small grids, and its figure on the test rows."""
    x, y = train.drop(columns=[target]), train[target]
    drop = [name for name in x if x[name].dtype == object and x[name].nunique() > 20 or name.endswith("_id")]
    x = x.drop(columns=drop)
    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    columns = make_column_transformer((numbers, make_column_selector(dtype_include=np.number)),
                                      (OneHotEncoder(handle_unknown="ignore", sparse_output=False), make_column_selector(dtype_exclude=np.number)))  # fmt: skip
    boosting, linear, net = (HistGradientBoostingRegressor, None, MLPRegressor) if metric == "r2" else (HistGradientBoostingClassifier, LogisticRegression, MLPClassifier)
    candidates = [
        (boosting(random_state=0, early_stopping=False), {"learning_rate": [0.05, 0.1], "max_iter": [50, 150], "max_leaf_nodes": [7, 31]}),
        (linear(max_iter=5000), {"C": [0.01, 0.1, 1, 10]}) if linear else (RidgeCV(np.logspace(-3, 3, 13)), {}),
        (net(random_state=0, max_iter=600, early_stopping=False), {"hidden_layer_sizes": [(64, 64)], "alpha": [1e-4, 0.1, 1.0]}),
    ]
    scoring = {"r2": "r2", "accuracy": "accuracy", "f1": "f1_macro"}[metric]
    best = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for model, grid in candidates:
            search = GridSearchCV(make_pipeline(columns, model), {f"{type(model).__name__.lower()}__{name}": values for name, values in grid.items()}, scoring=scoring, cv=5)
            search.fit(x, y)
            if best is None or search.best_score_ > best[0]:
                best = (search.best_score_, search, type(model).__name__)
    said = best[1].predict(test.drop(columns=[target, *drop]))
    figure = {"r2": r2_score, "accuracy": accuracy_score, "f1": lambda true, said: f1_score(true, said, average="macro")}[metric]
    return 100 * figure(test[target], said), best[2]


def last_figures(folder, run):
    """The figures of `trainrun eval`, as it prints them: name and number."""
    return {name: float(number) for name, number in re.findall(r"eval/(\w+)\s+(-?[\d.]+(?:e-?\d+)?)", run)}


def of_table(name, folder, log):
    train, test, target, metric = TABLES[name]()
    train.to_csv(folder / "train.csv", index=False)
    test.to_csv(folder / "new.csv", index=False)
    trainrun(folder, "init", "train.csv", "--target", target, "--name", "first", "--force", log=log)
    trainrun(folder, "run", "first.yaml")
    figures = json.loads(trainrun(folder, "eval", "runs/first", "dataset.eval.path=new.csv", "dataset.eval.split=null", "--json"))
    log.append(json.dumps(figures))
    return figures, metric, tuned_peer(train, test, target, metric)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    rows = []
    for name in arguments.names or TABLES:
        folder = arguments.work / name.replace(" ", "_")
        subprocess.run(["rm", "-rf", str(folder)], check=True)
        folder.mkdir(parents=True)
        log = []
        begun = time.time()
        figures, metric, (peer, peer_name) = of_table(name, folder, log)
        (folder / "transcript.txt").write_text("\n".join(log))
        print(name, metric, figures, peer, peer_name, f"{time.time() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()
