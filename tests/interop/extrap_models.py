"""Runs where Extra-P is installed: series as JSON on stdin, its models as JSON on stdout."""

import json
import sys
import warnings

from extrap.entities.callpath import Callpath
from extrap.entities.coordinate import Coordinate
from extrap.entities.experiment import Experiment
from extrap.entities.measurement import Measurement
from extrap.entities.metric import Metric
from extrap.entities.parameter import Parameter
from extrap.modelers.model_generator import ModelGenerator


def models(series: list[dict], options: dict[str, str]) -> list[dict]:
    """Of each series: the exponents of n and of log n in its model's term, and its own error."""
    return [_model(each["sizes"], each["samples"], options) for each in series]


def _model(sizes: list[int], samples: list[list[float]], options: dict[str, str]) -> dict:
    experiment = Experiment()
    experiment.add_parameter(Parameter("n"))
    callpath, metric = Callpath("all"), Metric("value")
    experiment.add_callpath(callpath)
    experiment.add_metric(metric)
    for size, values in zip(sizes, samples, strict=True):
        coordinate = Coordinate(size)
        experiment.add_coordinate(coordinate)
        experiment.add_measurement(Measurement(coordinate, callpath, metric, values))
    generator = ModelGenerator(experiment)
    for name, value in options.items():
        setattr(generator.modeler, name, value)
    generator.model_all()
    hypothesis = generator.models[callpath, metric].hypothesis
    exponents = {"polynomial": 0.0, "logarithm": 0.0}
    for term in hypothesis.function.compound_terms[:1]:
        exponents |= {each.term_type: float(each.exponent) for each in term.simple_terms}
    return {**exponents, "smape": float(hypothesis.SMAPE), "text": str(hypothesis.function)}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    asked = json.load(sys.stdin)
    json.dump(models(asked["series"], asked["options"]), sys.stdout)
