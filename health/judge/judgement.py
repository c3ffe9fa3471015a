"""A judgement: what one observation calls for, by which rule, and why, in words."""

import msgspec

from health.actions import Action, Drain
from health.catalogue.rows import Cause


class Judgement(msgspec.Struct, frozen=True, gc=False):
    """What one observation calls for by itself, before anything around it is looked at."""

    code: str
    """The fault's name everywhere: `xid:79`, `sxid:20034`, `nvml:remap_failure`, `hint:probe_failed`."""
    action: Action
    rule: str
    """The rule that fired, one word."""
    why: str
    """The reason in words."""
    cause: Cause
    variant: str = ""
    """A kind of this code that the text tells apart, such as a fault the GPU could not attribute."""
    place: str = ""
    """Where on the GPU, when the text says so: a link, a GPC and TPC."""
    drain: Drain = Drain.NONE
    ticket_allowed: bool = True
    """False when the fault points at somebody else's device: repetition is no case for this one."""
    follows_driver: bool = False
    """True when the driver's recovery action speaks about this fault and so decides."""
    watched: bool = True
    """Whether it raises suspicion when nothing has to be done."""
    by_number: bool = False
    """True when the driver's own recovery action was read: nothing in the file of policy changes it."""
