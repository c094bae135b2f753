"""Which trials a sweep makes and promotes, compared with Optuna of the installed version: the densities of the tree-structured
Parzen estimator number by number, what it finds on standard functions, and the decisions of successive halving."""

import math
import random

import numpy
import pytest

optuna = pytest.importorskip("optuna", reason="optuna is not installed: tools/setup --tests installs it")
scipy_stats = pytest.importorskip("scipy.stats")

optuna.logging.set_verbosity(optuna.logging.ERROR)

SEEDS, TRIALS = 24, 50
SEEDS_OF_OPTUNA = 12  # which takes ten times as long


def sphere(point):
    return sum(x * x for x in point)


def branin(point):
    x, y = point
    return (y - 5.1 / (4 * math.pi**2) * x * x + 5 / math.pi * x - 6) ** 2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10


HARTMANN_A = numpy.array([[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]])
HARTMANN_P = 1e-4 * numpy.array([[1312, 1696, 5569, 124, 8283, 5886], [2329, 4135, 8307, 3736, 1004, 9991],
                                 [2348, 1451, 3522, 2883, 3047, 6650], [4047, 8828, 8732, 5743, 1091, 381]])  # fmt: skip


def hartmann6(point):
    return -float(numpy.array([1, 1.2, 3, 3.2]) @ numpy.exp(-(HARTMANN_A * (numpy.array(point) - HARTMANN_P) ** 2).sum(axis=1)))


def mixed(point):
    """A logarithm, whole numbers and a category, as recipes have them."""
    rate, layers, kind = point
    return (math.log10(rate) + 3) ** 2 + 0.1 * (layers - 5) ** 2 + (0.5, 0, 2)[int(kind)]


FUNCTIONS = {
    "sphere": (sphere, [f"x{i}=uniform(-5,5)" for i in range(4)]),
    "branin": (branin, ["x=uniform(-5,10)", "y=uniform(0,15)"]),
    "hartmann6": (hartmann6, [f"x{i}=uniform(0,1)" for i in range(6)]),
    "mixed": (mixed, ["rate=log(1e-6,1)", "layers=1..12", "kind=[a,b,c]"]),
}


def distributions(space):
    """What Optuna calls the same values; categories are told by their numbers."""
    found = {}
    for text in space:
        key, value = text.split("=")
        if value.startswith("["):
            found[key] = optuna.distributions.CategoricalDistribution(tuple(range(len(value.split(",")))))
        elif ".." in value:
            low, high = map(int, value.split(".."))
            found[key] = optuna.distributions.IntDistribution(low, high)
        else:
            low, high = map(float, value[value.index("(") + 1:-1].split(","))
            found[key] = optuna.distributions.FloatDistribution(low, high, log=value.startswith("log"))
    return found


def best_of_optuna(function, space, seed):
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    spaces = distributions(space)
    for _ in range(TRIALS):
        trial = study.ask(spaces)
        study.tell(trial, function(list(trial.params.values())))
    return study.best_value


def bests_of_trainrun(probe, function, space, seeds):
    searches = [{"seed": seed, "points": [], "losses": []} for seed in seeds]
    for _ in range(TRIALS):
        reply, _ = probe.ask("tpe", space=space, searches=searches)
        for search, point in zip(searches, reply["points"], strict=True):
            search["points"].append(point)
            search["losses"].append(function(point))
    return [min(search["losses"]) for search in searches]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_estimator_finds_no_worse_values_than_optunas(probe, name):
    function, space = FUNCTIONS[name]
    own = bests_of_trainrun(probe, function, space, range(SEEDS))
    others = [best_of_optuna(function, space, seed) for seed in range(SEEDS_OF_OPTUNA)]
    worse = scipy_stats.mannwhitneyu(own, others, alternative="greater").pvalue  # small: ours are larger than by chance
    print(f"{name}: median {numpy.median(own):.4g}, Optuna's {numpy.median(others):.4g}, p {worse:.3f}")
    assert worse > 0.01
    chance = numpy.random.default_rng(0)
    drawn = [min(function(draw(chance, space)) for _ in range(TRIALS)) for _ in range(SEEDS)]
    assert numpy.median(own) < numpy.median(drawn)  # a test that random points could not pass


def draw(chance, space):
    point = []
    for distribution in distributions(space).values():
        if isinstance(distribution, optuna.distributions.CategoricalDistribution):
            point.append(int(chance.integers(len(distribution.choices))))
        elif isinstance(distribution, optuna.distributions.IntDistribution):
            point.append(int(chance.integers(distribution.low, distribution.high + 1)))
        elif distribution.log:
            point.append(math.exp(chance.uniform(math.log(distribution.low), math.log(distribution.high))))
        else:
            point.append(chance.uniform(distribution.low, distribution.high))
    return point


@pytest.mark.parametrize("count", [10, 24, 60, 300])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_densities_are_optunas(probe, name, count):
    """Of points at random: by how much the density of the good trials exceeds that of the others.

    Of equal whole numbers, Optuna's kernels get their widths in the order into which numpy's unstable sort brings them; so
    there are none here.
    """
    function, space = FUNCTIONS[name]
    space = [text.replace("1..12", "1..1000000") for text in space]
    chance = numpy.random.default_rng(count)
    observed = [draw(chance, space) for _ in range(count)]
    losses = [function(point) for point in observed]
    observed.append(draw(chance, space))
    losses.append(None)  # it runs
    points = [draw(chance, space) for _ in range(50)]
    own = probe.ask("tpe_excess", space=space, observed=observed, losses=losses, points=points)[0]["excesses"]

    spaces = distributions(space)
    sampler = optuna.samplers.TPESampler(seed=0)
    study = optuna.create_study(sampler=sampler)
    for point, loss in zip(observed, losses, strict=True):
        parameters = dict(zip(spaces, point, strict=True))
        state = optuna.trial.TrialState.RUNNING if loss is None else optuna.trial.TrialState.COMPLETE
        study.add_trial(optuna.trial.create_trial(state=state, value=loss, params=parameters, distributions=spaces))
    trials = study.get_trials(deepcopy=False)
    from optuna.samplers._tpe.sampler import _split_trials, default_gamma

    split = _split_trials(study, trials, default_gamma(count))
    below, above = (sampler._build_parzen_estimator(study, spaces, part, handle_below=part is split[0]) for part in split)
    samples = {key: numpy.array([point[i] for point in points], dtype=float) for i, key in enumerate(spaces)}
    expected = sampler._compute_acquisition_func(samples, below, above)
    numpy.testing.assert_allclose(own, expected, rtol=1e-6, atol=1e-6)


def optunas_promotions(values, reduction, min_steps, direction):
    """Trials one after the other, each with a figure at every rung: how many rungs each leaves."""
    pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=min_steps, reduction_factor=reduction)
    study = optuna.create_study(pruner=pruner, direction=direction)
    passed = []
    for figures in values:
        trial = study.ask()
        rungs = 0
        for rung, figure in enumerate(figures):
            trial.report(figure, min_steps * reduction**rung)
            if trial.should_prune():
                break
            rungs += 1
        passed.append(rungs)
        study.tell(trial, state=optuna.trial.TrialState.PRUNED)
    return passed


@pytest.mark.parametrize("reduction", [2, 3, 4])
@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_what_goes_on_at_once_is_what_optuna_promotes(probe, reduction, direction):
    chance = random.Random(reduction)
    decided = [0, 0]
    for _ in range(10):
        values = [[round(chance.gauss(0, 1), 1) for _ in range(4)] for _ in range(30)]  # some are equal
        values[7][1] = math.nan
        expected = optunas_promotions(values, reduction, 5, direction)
        sign = 1 if direction == "minimize" else -1
        arrivals = [[trial, rung, sign * figure]
                    for trial, (figures, passed) in enumerate(zip(values, expected, strict=True))
                    for rung, figure in enumerate(figures[:passed + 1]) if not math.isnan(figure)]  # fmt: skip
        reply, _ = probe.ask("halving", min_steps=5, reduction=reduction, arrivals=arrivals)
        for (trial, rung, _), goes_on in zip(arrivals, reply["goes_on"], strict=True):
            assert goes_on == (rung < expected[trial]), (trial, rung)
            decided[goes_on] += 1
    assert min(decided) > 20, decided


def test_promotions_are_those_of_the_papers_algorithm(probe):
    """Algorithm 2 of Li et al. 2020, written down again: get_job() after each result."""
    chance = random.Random(3)
    arrivals, expected, rungs, promoted, trial = [], [], {}, {}, 0
    waiting = []  # that were promoted, and come to their next rung later
    while len(arrivals) < 200:
        if waiting and chance.random() < 0.5:
            own, rung = waiting.pop(chance.randrange(len(waiting)))
        else:
            own, rung, trial = trial, 0, trial + 1
        loss = chance.random()
        arrivals.append([own, rung, loss])
        rungs.setdefault(rung, []).append((loss, own))
        jobs = []
        while True:
            job = None
            for level in sorted(rungs, reverse=True):
                best = sorted(rungs[level])[:len(rungs[level]) // 3]
                free = [name for _, name in best if name not in promoted.setdefault(level, set())]
                if free:
                    job = [free[0], level]
                    break
            if job is None:
                break
            promoted[job[1]].add(job[0])
            jobs.append(job)
            waiting.append((job[0], job[1] + 1))
        expected.append(jobs)
    reply, _ = probe.ask("halving", min_steps=1, reduction=3, arrivals=arrivals)
    assert reply["promoted"] == expected
    assert max(rung for jobs in expected for _, rung in jobs) >= 2
