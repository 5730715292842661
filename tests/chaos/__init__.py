"""Breaking things at random moments of a real run, and proving that nothing is lost: `make chaos`."""
