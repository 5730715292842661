"""The HTTP service: single requests and live sessions, with the code and the engines of the flows."""
