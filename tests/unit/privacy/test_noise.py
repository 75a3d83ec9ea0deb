"""The sampler against the exact law, its addresses, and its stated distance."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from hdpvfl_mq.errors import SettingsError
from hdpvfl_mq.privacy.noise import commitment, ladder, round_ratio, stream_key
from tests.lazily import Lazily

special, stats = Lazily("scipy.special"), Lazily("scipy.stats")


KEY = bytes(range(32))


def chunks(ratio: float, count: int) -> Iterator[np.ndarray]:
    size = 500_000
    for index in range(-(-count // size)):
        yield ladder(ratio).sample(min(size, count), stream_key(KEY, index.to_bytes(4, "big")))


def chi_square(ratio: float, count: int) -> float:
    """p-value of samples in some 100 cells, whole integers each, up to 6 deviations."""
    edges = np.unique(np.rint(np.linspace(-6.0, 6.0, 121) * ratio)) - 0.5
    observed = np.zeros(len(edges) + 1)
    for part in chunks(ratio, count):
        observed += np.bincount(np.searchsorted(edges, part), minlength=len(edges) + 1)
    cdf = np.concatenate([[0.0], special.ndtr(edges / ratio), [1.0]])
    expected = np.diff(cdf) * count
    tails = expected < 8  # pool what is too rare for the test
    observed = np.append(observed[~tails], observed[tails].sum())
    expected = np.append(expected[~tails], expected[tails].sum())
    keep = expected > 1
    statistic = float(((observed[keep] - expected[keep]) ** 2 / expected[keep]).sum())
    return float(stats.chi2.sf(statistic, int(keep.sum()) - 1))


# One, two, three and four rungs, and the two borders between them.
RATIOS = tuple(map(round_ratio, (0.7, 3.0, 511.0, 520.0, 9000.0, 570_000.0, 5e7)))


@pytest.mark.parametrize("ratio", RATIOS)
def test_chi_square_against_the_exact_law(ratio: float) -> None:
    assert chi_square(ratio, 1_000_000) > 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("ratio", RATIOS)
def test_chi_square_of_ten_million(ratio: float) -> None:
    assert chi_square(ratio, 10_000_000) > 1e-4


def tail_counts_fit(count: int, ratio: float, deviations: tuple[int, ...]) -> None:
    seen = dict.fromkeys(deviations, 0)
    for part in chunks(ratio, count):
        size = np.abs(part)
        for deviation in deviations:
            seen[deviation] += int((size > deviation * ratio).sum())
    for deviation, found in seen.items():
        mean = count * special.erfc((math.floor(deviation * ratio) + 0.5) / ratio / math.sqrt(2))
        assert stats.poisson.cdf(found, mean) > 1e-5
        assert stats.poisson.sf(found - 1, mean) > 1e-5


def test_tails() -> None:
    tail_counts_fit(1_000_000, round_ratio(9000.0), (3, 4, 5))


@pytest.mark.slow
@pytest.mark.parametrize("ratio", [round_ratio(400.0), round_ratio(9000.0), round_ratio(5e7)])
def test_tails_to_six_deviations(ratio: float) -> None:
    tail_counts_fit(10_000_000, ratio, (3, 4, 5, 6))


def test_the_ladder_convolves_to_the_rounded_gaussian_to_double_precision() -> None:
    # The exact law of a two-rung sum, from the tables, against the law it stands for.
    ratio = round_ratio(700.0)
    rungs = ladder(ratio).rungs
    span = 8192
    total = np.zeros(2 * span + 1)
    total[span] = 1.0
    for spacing, table in rungs:
        law = np.zeros_like(total)
        capacity = 2.0 ** (64 - table.index_bits)
        first = np.arange(len(table.ends), dtype=np.uint64) << np.uint64(64 - table.index_bits)
        own = (table.ends - first) / capacity / 2.0**table.index_bits
        pairs = table.values.reshape(-1, 2) * spacing
        inside = np.abs(pairs) <= span
        np.add.at(law, (pairs[:, 1] + span)[inside[:, 1]], own[inside[:, 1]])
        alias = 2.0**-table.index_bits - own
        np.add.at(law, (pairs[:, 0] + span)[inside[:, 0]], alias[inside[:, 0]])
        total = np.convolve(total, law)[span : 3 * span + 1]
    grid = np.arange(-span, span + 1)
    exact = special.ndtr((grid + 0.5) / ratio) - special.ndtr((grid - 0.5) / ratio)
    assert np.abs(total - exact).max() < 1e-14


def test_the_stated_distance_is_small_and_counts_every_rung() -> None:
    for ratio in RATIOS:
        units = ladder(ratio).tau_units
        assert 0 < units < 2 ** (140 - 110)
    one, two = ladder(round_ratio(160.0)), ladder(round_ratio(9000.0))
    assert len(one.rungs) == 1
    assert len(two.rungs) == 2
    assert two.tau_units > one.tau_units


def test_ratios_round_up_to_few_bits() -> None:
    for ratio in (0.3, 1.0, 3.14159265, 12345.678, 9.87e11):
        rounded = round_ratio(ratio)
        assert ratio <= rounded <= ratio * (1 + 2.0**-15)
        assert round_ratio(rounded) == rounded
    assert ladder(round_ratio(1000.0)) is ladder(round_ratio(1000.0))


@pytest.mark.parametrize("ratio", [0.0, 0.1, 2.0**45, math.inf, math.nan])
def test_impossible_ratios_are_refused(ratio: float) -> None:
    with pytest.raises(SettingsError):
        ladder(ratio)


def test_the_same_address_gives_the_same_noise_and_any_other_gives_another() -> None:
    seed = bytes(32)
    address = (b"bank", b"run-1", b"\x03", b"id", b"t" * 32, b"q" * 32)
    first = ladder(1000.0).sample(64, stream_key(seed, *address))
    assert (first == ladder(1000.0).sample(64, stream_key(seed, *address))).all()
    others = [stream_key(b"\x01" + bytes(31), *address)]
    for index in range(len(address)):
        changed = list(address)
        changed[index] = changed[index][:-1] + b"\xff"
        others.append(stream_key(seed, *changed))
    # Moving a byte over a border between fields is another address as well.
    others.append(stream_key(seed, b"ban", b"krun-1", *address[2:]))
    others.append(stream_key(seed, *address, b""))
    keys = {stream_key(seed, *address), *others}
    assert len(keys) == len(others) + 1
    for key in others:
        assert (first != ladder(1000.0).sample(64, key)).sum() > 48


def test_noise_of_neighbouring_addresses_is_uncorrelated() -> None:
    samples = np.stack(
        [ladder(1000.0).sample(50_000, stream_key(KEY, bytes([i]))) for i in range(6)]
    )
    correlation = np.corrcoef(samples) - np.eye(6)
    assert np.abs(correlation).max() < 5 / math.sqrt(50_000)


def test_a_commitment_binds_the_seed_and_hides_it() -> None:
    seed, salt = bytes(32), b"s" * 16
    assert commitment(seed, salt) == commitment(seed, salt)
    assert commitment(seed, salt) != commitment(b"\x01" + bytes(31), salt)
    assert commitment(seed, salt) != commitment(seed, b"t" * 16)
    for bad_seed, bad_salt in ((seed[:31], salt), (seed, salt[:15]), (seed, b"s" * 65)):
        with pytest.raises(SettingsError):
            commitment(bad_seed, bad_salt)
    with pytest.raises(SettingsError):
        stream_key(b"short", b"x")


@pytest.mark.parametrize("count", [1, 2, 65_535, 65_536, 65_537, 200_001])
@pytest.mark.parametrize("ratio", [3.0, 1e5])
def test_samples_are_the_same_read_at_once_or_by_chunks(count: int, ratio: float) -> None:
    key, made = stream_key(KEY, b"chunks"), ladder(ratio)
    stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    blocks = np.frombuffer(stream.update(bytes(16 * count * len(made.rungs))), dtype="<u8")
    words = blocks.reshape(len(made.rungs), 2, count)
    expected = sum(
        spacing * table.draw(high, low)
        for (spacing, table), (high, low) in zip(made.rungs, words, strict=True)
    )
    assert np.array_equal(made.sample(count, key), expected)
