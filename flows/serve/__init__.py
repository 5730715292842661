"""The HTTP service: single requests, answered by the code and the engines of the flows."""
