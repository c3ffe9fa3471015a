"""Correlation of two numbered series at every lag within a window, by FFT, with gaps allowed."""

import cmath
from collections.abc import Sequence

_FEWEST_PAIRS = 32


def lagged_correlations(
    received: Sequence[float | None], expected: Sequence[float | None], window: int
) -> dict[int, float]:
    """Pearson correlation of received[i] with expected[i - lag], for lags of -window to +window.

    Both should have mean 0 (per batch). None = no value there; a pair counts where both are. A lag
    is left out when so few pairs remain that chance would find a peak, or one side does not vary.
    """
    if len(received) != len(expected):
        raise ValueError(f"{len(received)} values received, {len(expected)} expected")
    here = [0.0 if each is None else 1.0 for each in received]
    there = [0.0 if each is None else 1.0 for each in expected]
    a = [each or 0.0 for each in received]
    b = [each or 0.0 for each in expected]
    size = 1
    while size < len(a) + window + 1:
        size *= 2
    # Five sums of products over all pairs at a lag; two real series fit into one complex FFT.
    spectra_a, spectra_b = _two_spectra(a, here, size), _two_spectra(b, there, size)
    squares_a, squares_b = (
        _two_spectra([x * x for x in a], [], size),
        _two_spectra([x * x for x in b], [], size),
    )
    products = _correlate(spectra_a[0], spectra_b[0])
    pairs = _correlate(spectra_a[1], spectra_b[1])
    energy_a = _correlate(squares_a[0], spectra_b[1])
    energy_b = _correlate(spectra_a[1], squares_b[0])
    enough = max(_FEWEST_PAIRS, sum(x * y for x, y in zip(here, there, strict=True)) / 4)
    found = {}
    for lag in range(-window, window + 1):
        place = lag % size
        power = energy_a[place] * energy_b[place]
        if pairs[place] + 0.5 > enough and power > 1e-18:
            found[lag] = max(-1.0, min(1.0, products[place] / power**0.5))
    return found


def _two_spectra(
    first: Sequence[float], second: Sequence[float], size: int
) -> tuple[list[complex], list[complex]]:
    packed = [complex(x) for x in first] + [0j] * (size - len(first))
    for place, value in enumerate(second):
        packed[place] += 1j * value
    both = _fft(packed, -1)
    mirrored = [both[-place % size].conjugate() for place in range(size)]
    pairs = list(zip(both, mirrored, strict=True))
    return [(x + y) / 2 for x, y in pairs], [(x - y) / 2j for x, y in pairs]


def _correlate(a: list[complex], b: list[complex]) -> list[float]:
    """Sum over i of a[i] * b[i - lag], by lag (negative ones from the end)."""
    spectrum = [x * y.conjugate() for x, y in zip(a, b, strict=True)]
    size = len(spectrum)
    return [each.real / size for each in _fft(spectrum, +1)]


def _fft(values: list[complex], sign: int) -> list[complex]:
    """Radix 2, iterative; the number of values is a power of two."""
    size = len(values)
    out = [values[place] for place in _bit_reversed(size)]
    half = 1
    while half < size:
        turn = [cmath.exp(sign * 1j * cmath.pi * step / half) for step in range(half)]
        for start in range(0, size, 2 * half):
            left, right = out[start : start + half], out[start + half : start + 2 * half]
            turned = [x * y for x, y in zip(right, turn, strict=True)]
            out[start : start + half] = [x + y for x, y in zip(left, turned, strict=True)]
            out[start + half : start + 2 * half] = [
                x - y for x, y in zip(left, turned, strict=True)
            ]
        half *= 2
    return out


def _bit_reversed(size: int) -> list[int]:
    order = [0]
    while len(order) < size:
        order = [2 * each for each in order] + [2 * each + 1 for each in order]
    return order


def demeaned(
    values: Sequence[float | None], batch_size: int, level: Sequence[float | None] = ()
) -> list[float | None]:
    """The values minus the mean of their batch: what a better policy brings to all is no signal.

    `level` is a series of the same kind that has more values. Where fewer than half of a batch's
    values are there, their own mean would be mostly chance, and that of `level` is taken.
    """
    out: list[float | None] = []
    for start in range(0, len(values), batch_size):
        batch = values[start : start + batch_size]
        there = [each for each in batch if each is not None]
        usual = [each for each in level[start : start + batch_size] if each is not None]
        means_from = usual if 2 * len(there) < len(usual) else there
        mean = sum(means_from) / len(means_from) if means_from else 0.0
        out += [None if each is None else each - mean for each in batch]
    return out
