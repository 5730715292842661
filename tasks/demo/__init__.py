"""The demo: clips of moving shapes with known answers, and the tiny model trained on them by `tools.tiny_model`."""
