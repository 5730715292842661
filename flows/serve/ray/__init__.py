"""The service as an application of Ray Serve."""
