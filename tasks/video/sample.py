"""Which of the available frames are shown."""

from __future__ import annotations


def pick_evenly(available: int, wanted: int) -> list[int]:
    """Spread picks evenly over what is available, both ends included.

    With fewer frames than picks, frames repeat in balance: their counts differ by at most one.

    Args:
        available: Number of frames to choose from; at least 1.
        wanted: Number of picks; at least 1.

    Returns:
        `wanted` indices in [0, available), ascending.

    Raises:
        ValueError: There is nothing to pick from, or nothing is wanted.
    """
    if available < 1 or wanted < 1:
        raise ValueError(f"cannot pick {wanted} of {available} frames")
    if available < wanted:
        return [pick * available // wanted for pick in range(wanted)]
    if wanted == 1:
        return [available // 2]
    gaps = wanted - 1
    # Integer rounding half up: no floating point, the same picks everywhere.
    return [(2 * pick * (available - 1) + gaps) // (2 * gaps) for pick in range(wanted)]
