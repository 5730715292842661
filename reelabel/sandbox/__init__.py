"""What a decoding process gives up before it reads a video."""
