"""Live sessions on the engine: prefixes of adjacent pairs of frames, read as they grow, and questions about them."""
