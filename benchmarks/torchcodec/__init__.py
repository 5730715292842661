"""Dense sampling beside TorchCodec, which has an environment of its own."""
