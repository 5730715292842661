"""Which frames of a video the model sees."""
