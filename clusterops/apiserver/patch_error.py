"""The refusal of a patch or an apply."""

from clusterops.apiserver.causes import Refused


class PatchError(Refused):
    """A patch that cannot be applied: 400 malformed, 409 conflict, 415 wrong type, 422 unfit."""
