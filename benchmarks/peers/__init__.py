"""Compares Reelabel with other tools on the same jobs, each in a separate environment."""
