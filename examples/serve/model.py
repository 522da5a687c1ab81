"""The classifier: it tells dishes apart by what is in them. Plain numpy, the same in training and in serving."""

import numpy

DISHES = ["bread", "dessert", "egg", "noodles", "rice", "soup"]
INGREDIENTS = 16


def data(seed, rows):
    """Dishes with the amounts of their ingredients, and which dish each of them is."""
    fixed = numpy.random.default_rng(0)
    typical = fixed.normal(size=(len(DISHES), INGREDIENTS))
    # Some come in large amounts and say little; others are spices.
    amounts = 10.0 ** numpy.linspace(-1, 0.5, INGREDIENTS)
    random = numpy.random.default_rng(seed)
    dishes = random.integers(0, len(DISHES), rows)
    return (typical[dishes] + random.normal(scale=1.2, size=(rows, INGREDIENTS))) * amounts, dishes


def chances(weights, points):
    """How likely each of the points is each of the dishes."""
    scores = points @ weights
    scores = numpy.exp(scores - scores.max(axis=1, keepdims=True))
    return scores / scores.sum(axis=1, keepdims=True)


def predict(model, points):
    """The dish that each of the points is, and how likely, by a model as `train.py` saves it."""
    found = chances(numpy.array(model["weights"]), numpy.array(points, dtype=float))
    best = found.argmax(axis=1)
    return [{"dish": model["dishes"][at], "chance": round(float(row[at]), 6)} for at, row in zip(best, found)]
