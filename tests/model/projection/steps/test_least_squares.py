"""Least squares with priors."""

from __future__ import annotations

import numpy as np
import pytest

from farandole.model.projection.steps.least_squares import (
    Prior,
    Problem,
    draw,
    left_out,
    solve,
)
from farandole.study.records import Floats

X = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 5.0])


def line(parameters: Floats) -> Floats:
    return parameters[:, :1] + parameters[:, 1:2] * X


def problem(observed: Floats, *, sd: float = 100.0, sigma: float = 0.1) -> Problem:
    prior = Prior(lines=np.eye(2), mean=np.zeros(2), sd=np.full(2, sd))
    return Problem(
        log_times=line, observed=observed, weights=np.ones(len(X)), prior=prior, sigma=sigma
    )


def test_a_line_is_found_with_the_textbook_covariance() -> None:
    found = solve(problem(1.0 + 0.5 * X), [np.zeros(2)])
    assert found.parameters == pytest.approx([1.0, 0.5], abs=1e-4)
    design = np.column_stack([np.ones_like(X), X])
    assert found.covariance == pytest.approx(0.1**2 * np.linalg.inv(design.T @ design), rel=1e-3)


def test_one_odd_row_moves_little() -> None:
    observed = 1.0 + 0.5 * X
    observed[5] += 2.0
    plain_slope = np.polyfit(X, observed, 1)[0]
    found = solve(problem(observed), [np.zeros(2)])
    assert abs(found.parameters[1] - 0.5) < 0.3 * abs(plain_slope - 0.5)


def test_a_strong_prior_holds_against_the_rows() -> None:
    found = solve(problem(1.0 + 0.5 * X, sd=1e-4), [np.zeros(2)])
    assert found.parameters == pytest.approx([0.0, 0.0], abs=1e-3)


def test_a_prior_may_tie_parameters_to_each_other() -> None:
    flat = Prior(
        lines=np.array([[1.0, -1.0], [1.0, 0.0]]), mean=np.zeros(2), sd=np.array([1e-4, 100.0])
    )
    tied = Problem(
        log_times=line, observed=2.0 + 0.0 * X, weights=np.ones(len(X)), prior=flat, sigma=0.1
    )
    found = solve(tied, [np.zeros(2)]).parameters
    assert found[0] == pytest.approx(found[1], abs=1e-3)


def test_the_best_of_several_starts_is_kept() -> None:
    def bent(parameters: Floats) -> Floats:
        # The same line, with a trap far away from it.
        trap = 3 * np.exp(-((parameters[:, :1] + 8) ** 2))
        return line(parameters) + trap

    stuck = problem(1.0 + 0.5 * X)
    trapped = Problem(
        log_times=bent, observed=stuck.observed, weights=stuck.weights, prior=stuck.prior, sigma=0.1
    )
    found = solve(trapped, [np.array([-8.0, 3.0]), np.zeros(2)])
    assert found.parameters == pytest.approx([1.0, 0.5], abs=1e-3)


def test_left_out_residuals_are_those_of_a_fit_without_the_rows() -> None:
    noise = np.array([0.02, -0.01, 0.03, -0.04, 0.01, 0.02])
    observed = 1.0 + 0.5 * X + noise
    labels = np.array([0, 0, 1, 1, 2, 2])
    found = left_out(solve(problem(observed), [np.zeros(2)]), labels)
    for label in range(3):
        rows = labels == label
        slope, start = np.polyfit(X[~rows], observed[~rows], 1)
        assert found[rows] == pytest.approx(observed[rows] - start - slope * X[rows], abs=2e-3)


def test_draws_have_the_covariance_and_are_the_same_each_time() -> None:
    found = solve(problem(1.0 + 0.5 * X), [np.zeros(2)])
    drawn, shares = draw(found, 2000)
    assert np.cov(drawn.T) == pytest.approx(found.covariance, rel=0.15)
    assert shares.min() > 0.5
    again, _ = draw(found, 2000)
    assert (drawn == again).all()


def test_draws_that_the_rows_contradict_count_little() -> None:
    def hiding(parameters: Floats) -> Floats:
        # Flat below 0, steep above: the curvature at -3 knows of nothing.
        return np.repeat(np.maximum(0.0, parameters[:, :1]) * 10, len(X), axis=1)

    prior = Prior(lines=np.eye(1), mean=np.array([-3.0]), sd=np.array([3.0]))
    hidden = Problem(
        log_times=hiding, observed=np.zeros(len(X)), weights=np.ones(len(X)), prior=prior, sigma=0.1
    )
    drawn, shares = draw(solve(hidden, [np.array([-3.0])]), 200)
    above = drawn[:, 0] > 1
    assert above.any()
    assert shares[above].max() < 1e-6
    assert shares[drawn[:, 0] < 0].min() > 0.99
