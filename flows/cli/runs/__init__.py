"""Commands that start, follow and estimate runs."""
