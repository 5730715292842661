"""Training and evaluation of the demo's tiny image-text model."""
