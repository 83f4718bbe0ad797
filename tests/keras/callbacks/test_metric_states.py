"""The states of Keras's metrics add up, and what is not Keras's is left alone."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest

from farandole.keras.metrics import flatten, is_additive, numeric, read, result_of

# Keras on torch takes tensors for arrays in a way that NumPy warns of.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

RANDOM = np.random.default_rng(5)
ROWS, CLASSES = 60, 4
# Unequal shares.
CUT = 17


def one_hot(labels: np.ndarray) -> np.ndarray:
    return np.eye(CLASSES, dtype="float32")[labels]


LABELS = RANDOM.integers(0, CLASSES, ROWS)
SCORES = RANDOM.random((ROWS, CLASSES)).astype("float32")
SCORES /= SCORES.sum(axis=1, keepdims=True)
REAL = RANDOM.normal(size=(ROWS, CLASSES)).astype("float32")
GUESS = (REAL + RANDOM.normal(size=(ROWS, CLASSES)) / 3).astype("float32")
BINARY = (RANDOM.random(ROWS) > 0.4).astype("float32")
CHANCE = RANDOM.random(ROWS).astype("float32")

ONE_HOT = (one_hot(LABELS), SCORES)
SPARSE = (LABELS, SCORES)
REGRESSION = (REAL, GUESS)
POSITIVE = (np.abs(REAL), np.abs(GUESS))
YES_NO = (BINARY[:, None], CHANCE[:, None])

CASES: dict[str, tuple[Callable[[], Any], tuple[np.ndarray, np.ndarray]]] = {
    "AUC": (keras.metrics.AUC, YES_NO),
    "Accuracy": (keras.metrics.Accuracy, (LABELS, SCORES.argmax(1))),
    "BinaryAccuracy": (keras.metrics.BinaryAccuracy, YES_NO),
    "BinaryCrossentropy": (keras.metrics.BinaryCrossentropy, YES_NO),
    "BinaryIoU": (keras.metrics.BinaryIoU, YES_NO),
    "CategoricalAccuracy": (keras.metrics.CategoricalAccuracy, ONE_HOT),
    "CategoricalCrossentropy": (keras.metrics.CategoricalCrossentropy, ONE_HOT),
    "CategoricalHinge": (keras.metrics.CategoricalHinge, ONE_HOT),
    "ConcordanceCorrelation": (keras.metrics.ConcordanceCorrelation, REGRESSION),
    "CosineSimilarity": (keras.metrics.CosineSimilarity, REGRESSION),
    "F1Score": (lambda: keras.metrics.F1Score(average=None), ONE_HOT),
    "FBetaScore": (lambda: keras.metrics.FBetaScore(average="weighted"), ONE_HOT),
    "FalseNegatives": (keras.metrics.FalseNegatives, YES_NO),
    "FalsePositives": (keras.metrics.FalsePositives, YES_NO),
    "Hinge": (keras.metrics.Hinge, YES_NO),
    "IoU": (lambda: keras.metrics.IoU(CLASSES, [0, 1]), (LABELS, SCORES.argmax(1))),
    "KLDivergence": (keras.metrics.KLDivergence, ONE_HOT),
    "LogCoshError": (keras.metrics.LogCoshError, REGRESSION),
    "MeanAbsoluteError": (keras.metrics.MeanAbsoluteError, REGRESSION),
    "MeanAbsolutePercentageError": (keras.metrics.MeanAbsolutePercentageError, POSITIVE),
    "MeanIoU": (lambda: keras.metrics.MeanIoU(CLASSES), (LABELS, SCORES.argmax(1))),
    "MeanMetricWrapper": (
        lambda: keras.metrics.MeanMetricWrapper(lambda t, p: keras.ops.abs(t - p)),
        YES_NO,
    ),
    "MeanSquaredError": (keras.metrics.MeanSquaredError, REGRESSION),
    "MeanSquaredLogarithmicError": (keras.metrics.MeanSquaredLogarithmicError, POSITIVE),
    "OneHotIoU": (lambda: keras.metrics.OneHotIoU(CLASSES, [0, 2]), ONE_HOT),
    "OneHotMeanIoU": (lambda: keras.metrics.OneHotMeanIoU(CLASSES), ONE_HOT),
    "PearsonCorrelation": (keras.metrics.PearsonCorrelation, REGRESSION),
    "Poisson": (keras.metrics.Poisson, POSITIVE),
    "Precision": (keras.metrics.Precision, YES_NO),
    "PrecisionAtRecall": (lambda: keras.metrics.PrecisionAtRecall(0.6), YES_NO),
    "R2Score": (keras.metrics.R2Score, REGRESSION),
    "Recall": (keras.metrics.Recall, YES_NO),
    "RecallAtPrecision": (lambda: keras.metrics.RecallAtPrecision(0.5), YES_NO),
    "RootMeanSquaredError": (keras.metrics.RootMeanSquaredError, REGRESSION),
    "SensitivityAtSpecificity": (lambda: keras.metrics.SensitivityAtSpecificity(0.5), YES_NO),
    "SparseCategoricalAccuracy": (keras.metrics.SparseCategoricalAccuracy, SPARSE),
    "SparseCategoricalCrossentropy": (keras.metrics.SparseCategoricalCrossentropy, SPARSE),
    "SparseTopKCategoricalAccuracy": (
        lambda: keras.metrics.SparseTopKCategoricalAccuracy(2),
        SPARSE,
    ),
    "SpecificityAtSensitivity": (lambda: keras.metrics.SpecificityAtSensitivity(0.5), YES_NO),
    "SquaredHinge": (keras.metrics.SquaredHinge, YES_NO),
    "TopKCategoricalAccuracy": (lambda: keras.metrics.TopKCategoricalAccuracy(2), ONE_HOT),
    "TrueNegatives": (keras.metrics.TrueNegatives, YES_NO),
    "TruePositives": (keras.metrics.TruePositives, YES_NO),
}
# Fed with values, not with labels and predictions, or nothing on their own.
ELSEWHERE = {"Mean", "Sum", "Metric"}


def test_the_table_has_every_metric_of_keras() -> None:
    known = {name for name, found in vars(keras.metrics).items() if inspect.isclass(found)}
    assert known - CASES.keys() - ELSEWHERE == set()


def state_of(metric: Any) -> list[np.ndarray]:
    return [np.array(keras.ops.convert_to_numpy(v), np.float64) for v in metric.variables]


def check_adds_up(make: Callable[[], Any], feed: Callable[[Any, slice], None]) -> None:
    whole, first, second = make(), make(), make()
    feed(whole, slice(None))
    feed(first, slice(None, CUT))
    feed(second, slice(CUT, None))
    assert is_additive(first)
    before = state_of(first)
    summed = [a + b for a, b in zip(before, state_of(second), strict=True)]
    got = result_of(first, summed, "m")["m"]
    expected = keras.ops.convert_to_numpy(whole.result())
    np.testing.assert_allclose(got, expected, rtol=2e-6, atol=1e-6)
    # Its own state is what it was.
    for now, then in zip(state_of(first), before, strict=True):
        np.testing.assert_array_equal(now, then)


@pytest.mark.parametrize("name", CASES)
def test_two_shares_say_what_the_whole_says(name: str) -> None:
    make, (truth, guess) = CASES[name]
    check_adds_up(make, lambda metric, part: metric.update_state(truth[part], guess[part]))


@pytest.mark.parametrize("make", [keras.metrics.Mean, keras.metrics.Sum])
def test_metrics_of_values(make: Callable[[], Any]) -> None:
    check_adds_up(make, lambda metric, part: metric.update_state(CHANCE[part], BINARY[part]))


class Peak(keras.metrics.Metric):  # type: ignore[misc, name-defined]
    """The largest prediction: its state does not add up."""

    def __init__(self, name: str = "peak") -> None:
        super().__init__(name=name)
        self.peak = self.add_variable((), "zeros", name="peak")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.peak.assign(keras.ops.maximum(self.peak, keras.ops.max(y_pred)))

    def result(self) -> Any:
        return self.peak


class Renamed(keras.metrics.MeanMetricWrapper):  # type: ignore[misc, name-defined]
    """A class of the user's whose state Keras updates."""

    def __init__(self) -> None:
        super().__init__(keras.losses.mean_squared_error, name="renamed")


class Percent(keras.metrics.Mean):  # type: ignore[misc, name-defined]
    """A class of the user's that updates its state itself."""

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        return super().update_state(100.0 * y_pred)


@pytest.mark.parametrize(("kind", "expected"), [(Peak, False), (Renamed, True), (Percent, False)])
def test_whose_state_adds_up(kind: Callable[[], Any], expected: bool) -> None:
    assert is_additive(kind()) is expected


def test_reading_a_model_finds_metrics_by_their_names_in_the_logs() -> None:
    inputs = keras.Input((3,))
    outputs = [keras.layers.Dense(1, name="a")(inputs), keras.layers.Dense(1, name="b")(inputs)]
    model = keras.Model(inputs, outputs)
    model.compile(
        "sgd",
        ["mse", "mse"],
        metrics=[["mae", "mae", Peak()], ["mae", "auc"]],
        weighted_metrics=[["mae"], ["mse"]],
    )
    x, y = RANDOM.normal(size=(10, 3)), RANDOM.random((10, 1))
    logs = model.evaluate(x, [y > 0.5, y > 0.5], return_dict=True, verbose=0)
    reading = read(model)
    assert reading.samples == 10
    assert set(logs) - set(reading.metrics) == {"a_peak"}
    for name in reading.metrics:
        assert reading.fits(name, logs, ""), name
        assert result_of(reading.metrics[name], reading.states[name], name)[name] == pytest.approx(
            logs[name], rel=1e-6
        )
    assert not reading.fits("loss", logs | {"loss": logs["loss"] + 1}, "")
    assert not reading.fits("loss", {}, "")


def test_a_reading_is_apart_from_the_model() -> None:
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.evaluate(np.ones((4, 1)), np.ones((4, 1)), verbose=0)
    reading = read(model)
    model.reset_metrics()
    assert reading.states["loss"][1] == 4


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1, 1.0),
        (np.float32(0.5), 0.5),
        ([1, 2], [1.0, 2.0]),
        (keras.ops.convert_to_tensor([1.0, 2.0]), [1.0, 2.0]),
        ("now", "str"),
        ("1.5", "str"),
        (None, "NoneType"),
        (object(), "object"),
    ],
)
def test_logs_are_numbers_arrays_or_something_else(value: Any, expected: Any) -> None:
    got = numeric(value)
    assert (got if isinstance(got, str) else got.tolist()) == expected


def test_what_a_metric_gives_as_a_dict_has_its_inner_names() -> None:
    assert flatten({"a": 1, "b": {"c": 2, "d": {"e": 3}}}) == {"a": 1, "c": 2, "e": 3}
