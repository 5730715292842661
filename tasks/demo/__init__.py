"""The demo: clips of moving shapes with known answers, and the tiny model that was trained on them."""
