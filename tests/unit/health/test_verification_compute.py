"""The computing part of the proof, on the processor: the same code that runs on a GPU."""

import pytest

from health import verification_compute

torch = pytest.importorskip("torch")
CPU = torch.device("cpu")


def check(module=torch):
    return verification_compute.check(module, CPU, seconds=0.0, matrix=32, memory=1 << 16)


def test_a_device_that_computes_has_no_fault_and_its_figures():
    faults, figures = check()
    assert faults == []
    assert set(figures) == {"gemm_teraflops", "memory_gigabytes_a_second"}
    assert all(value >= 0 for value in figures.values())


class Wrong:
    """torch with one operation that fails now and then, as broken hardware does."""

    def __init__(self, **wrong):
        self._wrong = wrong

    def __getattr__(self, name):
        return self._wrong.get(name, getattr(torch, name))


def test_a_product_that_comes_out_differently_is_a_fault():
    answers = iter([False])
    wrong = Wrong(equal=lambda *_: next(answers, True))
    assert check(wrong)[0] == ["the same product came out differently"]


def test_memory_that_is_not_copied_as_it_was_is_a_fault():
    def equal(a, b):
        return a.dtype is not torch.uint8

    assert check(Wrong(equal=equal))[0] == ["memory was not copied as it was"]


def test_memory_that_does_not_hold_a_pattern_is_a_fault():
    class Stuck:
        """Memory with a bit that stays 1."""

        def __init__(self, real):
            self._real = real

        def fill_(self, pattern):
            self._real.fill_(pattern)
            self._real[77] |= 0x04

        def __getattr__(self, name):
            return getattr(self._real, name)

    def empty(*size, **more):
        return Stuck(torch.empty(*size, **more))

    assert check(Wrong(empty=empty))[0] == ["memory did not hold a pattern"]
