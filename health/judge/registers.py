"""The register words of Xid 74: which bits are harmless, whose fault the others are.

Words are counted from 1; the first, third, fourth and fifth are valid up to Hopper, and only the
first and the fifth have bits with a settled meaning.
"""

from msgspec.structs import replace

from health.actions import Action
from health.judge.judgement import Judgement
from health.parse.details import LinkRegisters


def _bits(*numbers: int) -> int:
    return sum(1 << number for number in numbers)


HARMLESS = _bits(0, 23, 30)
SYMPATHETIC = _bits(1, 20)
PARITY = _bits(4, 5)
MECHANICAL = _bits(8, 9, 12, 16, 17, 24, 28)
SIGNAL = _bits(21, 22)
THRESHOLD_ONLY = _bits(20, 23, 26, 29)
"""Of the fifth word: a counter passed its limit, the link goes on."""


def judge_registers(base: Judgement, registers: LinkRegisters) -> Judgement:
    """A 74 by its words; the catalogue's action where they are cut off or say nothing settled."""
    place = f"link {registers.link}" if registers.link is not None else ""
    base = replace(base, place=place)
    if not any(registers.words):
        return base
    first, fifth = registers.words[0], registers.words[4] if len(registers.words) > 4 else 0
    others = [word for number, word in enumerate(registers.words) if number not in (0, 4)]
    unsettled = any(others) or fifth & ~THRESHOLD_ONLY
    for variant, bits, meaning in _HARD:
        if first & bits:
            return replace(base, rule="link_registers", variant=variant,
                           why=f"Xid 74 on {place}: {meaning}")  # fmt: skip
    if unsettled or first & ~(HARMLESS | SYMPATHETIC):
        return base
    if first & SYMPATHETIC:
        return _quiet(base, "sympathetic", f"Xid 74 on {place}: the echo of another fault")
    return _quiet(base, "harmless", f"Xid 74 on {place}: only bits that may be ignored")


_HARD = (
    ("parity", PARITY, "an ECC or parity error of the link"),
    ("mechanical", MECHANICAL, "may be the connection or the hardware"),
    ("signal", SIGNAL, "the signal is marginal"),
)


def _quiet(base: Judgement, variant: str, why: str) -> Judgement:
    return replace(base, action=Action.NONE, rule="link_registers", variant=variant, why=why)
