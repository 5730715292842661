"""From packets to pixels, each frame proven to be the one that a linear decode shows."""
