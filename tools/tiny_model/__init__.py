"""Training and evaluation of the demo's tiny model."""
