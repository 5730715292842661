"""Even picks from a number of frames."""

from __future__ import annotations


def pick_evenly(available: int, wanted: int) -> list[int]:
    """Pick frames at even spacing, first and last included.

    If there are fewer frames than picks, frames repeat evenly: their counts differ by at most one.

    Args:
        available: Number of frames to choose from; at least 1.
        wanted: Number of picks; at least 1.

    Returns:
        `wanted` indices in [0, available), ascending.

    Raises:
        ValueError: An argument is less than 1.
    """
    if available < 1 or wanted < 1:
        raise ValueError(f"cannot pick {wanted} of {available} frames")
    if available < wanted:
        return [pick * available // wanted for pick in range(wanted)]
    if wanted == 1:
        return [available // 2]
    gaps = wanted - 1
    # Round half up in integers, so that picks do not depend on floating point.
    return [(2 * pick * (available - 1) + gaps) // (2 * gaps) for pick in range(wanted)]
