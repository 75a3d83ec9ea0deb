"""Formulas over blocks of rows: the bits of one block, and the same fit for many."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from hdpvfl_mq.engine.disk_space import DiskSpace
from hdpvfl_mq.engine.port import LocalEngine
from hdpvfl_mq.glm.block import ColumnBlock
from hdpvfl_mq.glm.families import family
from hdpvfl_mq.methods.private_model import expectation, last_fit, problem, row_blocks
from hdpvfl_mq.methods.private_model.expectation import Shares, expect
from hdpvfl_mq.methods.private_model.problem import Labels
from hdpvfl_mq.methods.private_model.row_blocks import filled, summed, variance
from hdpvfl_mq.methods.private_model.statistics import moments
from hdpvfl_mq.methods.private_model.weights import ReceivedLabels
from parties.process.mapped_arrays import MappedArrays
from schemas.model import LossSpec

pytestmark = pytest.mark.seconds

ROWS = 3000


def test_one_block_has_the_bits_of_the_whole_formula():
    X = np.random.default_rng(0).normal(size=(ROWS, 3))
    assert np.array_equal(summed(ROWS, lambda rows: X[rows].T @ X[rows]), X.T @ X)
    assert np.array_equal(variance(ROWS, lambda rows: X[rows]), X.var(axis=0))
    assert variance(ROWS, lambda rows: X[rows, 0].copy()) == X[:, 0].copy().var()
    assert np.array_equal(filled(X.shape, lambda rows: X[rows] / 3.0, np.empty), X / 3.0)


def test_blocks_are_folded_in_order(monkeypatch):
    monkeypatch.setattr(row_blocks, "BLOCK_ROWS", 7)
    seen = []

    def noted(rows):
        seen.append((rows.start, rows.stop))
        return np.zeros(1)

    summed(20, noted)
    assert seen == [(0, 7), (7, 14), (14, 20)]


def test_a_passive_party_copies_no_residuals_of_all_rows(tmp_path):
    rows = 5 * row_blocks.BLOCK_ROWS
    z, X = (MappedArrays(DiskSpace(tmp_path))(shape, np.float64) for shape in ((rows,), (rows, 1)))
    z[:], X[:] = 0.5, 0.25
    block = ColumnBlock(X)
    tracemalloc.start()
    try:
        moments(block, z, clip=1.0, exponent=-40)
        most_of_moments = tracemalloc.get_traced_memory()[1]
        ReceivedLabels.of(family(LossSpec(name="least_squares")), z, z, 1.0)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most_of_moments < z.nbytes / 4
    assert most < z.nbytes / 2  # some arrays of one block


@pytest.mark.parametrize("partners", [0, 2])
def test_many_blocks_give_the_fit_of_one(partners, monkeypatch, tmp_path):
    dice = np.random.default_rng(1)
    A = np.hstack([dice.normal(size=(ROWS, 2)), np.ones((ROWS, 1))])
    exact = dice.normal(size=(ROWS, 2))
    y = (A[:, 0] + exact.sum(axis=1) + dice.normal(size=ROWS) > 0).astype(float)
    labels = Labels(family=family(LossSpec(name="logistic")), y=y)
    values = exact + dice.normal(size=exact.shape)
    shares = Shares(values=values[:2500], noise_std=np.ones(2), size=np.ones(2))

    def fit():
        made = []

        def allocate(shape, dtype):
            made.append(shape)
            return MappedArrays(DiskSpace(tmp_path))(shape, dtype)

        expected = expect(A, shares, allocate) if partners else None
        return last_fit.last_fit(A, labels, expected, allocate=allocate), made

    whole, _ = fit()
    for module in (row_blocks, expectation, problem):
        monkeypatch.setattr(module, "BLOCK_ROWS", 400)
    blocked, made = fit()
    assert (ROWS, 3) in made
    assert blocked.is_joint == whole.is_joint == bool(partners)
    np.testing.assert_allclose(blocked.w, whole.w, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(blocked.w_std, whole.w_std, rtol=1e-6)
    np.testing.assert_allclose(blocked.coefficients, whole.coefficients, rtol=1e-6)


def test_the_last_fit_of_many_rows_holds_some_blocks(monkeypatch, tmp_path):
    size, dice, allocate = 1024, np.random.default_rng(2), MappedArrays(DiskSpace(tmp_path))
    for module in (row_blocks, expectation, problem):
        monkeypatch.setattr(module, "BLOCK_ROWS", size)
    monkeypatch.setattr(last_fit, "_ROWS_TO_VALIDATE", size)

    def peak(rows):
        A, values, y = (allocate(shape, np.float64) for shape in ((rows, 3), (rows, 1), (rows,)))
        A[:], values[:] = dice.normal(size=A.shape), dice.normal(size=values.shape)
        A[:, -1], y[:] = 1.0, (A[:, 0] + values[:, 0] > 0).astype(float)
        labels = Labels(family=family(LossSpec(name="logistic")), y=y)
        shares = Shares(values=values, noise_std=np.ones(1), size=np.ones(1))
        tracemalloc.start()
        try:
            expected = expect(A, shares, allocate)
            engine = LocalEngine(allocate)
            last_fit.last_fit(A, labels, expected, engine, allocate=allocate)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    few, many = 5 * size, 30 * size
    assert peak(many) - peak(few) < (many - few)  # it was 54 bytes for each further row
