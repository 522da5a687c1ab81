"""The lab's data and model without PyTorch: images in eleven classes, and a linear model of them.

The data set Food-11 of `nvidia.yaml` holds a number from which the images are made, in place of photos.
"""

import os
import pathlib

import numpy

CLASSES, SIDE, NOISE = 11, 16, 14


def images(number, seed):
    """Images whose class is a pattern under noise, each a row of numbers, and their classes; others for each seed."""
    data_set = pathlib.Path(os.environ["GPUCL_DATA"], "Food-11", "training", "seed")
    patterns = numpy.random.default_rng(int(data_set.read_text())).random((CLASSES, 3 * SIDE * SIDE))
    random = numpy.random.default_rng(seed)
    labels = random.integers(0, CLASSES, number)
    return patterns[labels] - 0.5 + NOISE * (random.random((number, patterns.shape[1])) - 0.5), labels


def network():
    """The weights of a model before its training."""
    return numpy.zeros((3 * SIDE * SIDE, CLASSES))


def gradient(weights, rows, labels, kept=None):
    """The gradient of the cross entropy over some images; `kept` hides the rest of their pixels."""
    rows = rows if kept is None else rows * kept
    scores = rows @ weights
    chances = numpy.exp(scores - scores.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    chances[numpy.arange(len(labels)), labels] -= 1
    return rows.T @ chances / len(labels)


def batches(number, size):
    """The slices of one epoch."""
    return [slice(at, at + size) for at in range(0, number, size)]


def accuracy(weights, rows, labels):
    """The part of the images whose class was found."""
    return float(((rows @ weights).argmax(axis=1) == labels).mean())
