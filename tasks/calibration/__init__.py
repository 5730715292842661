"""Calibration: fit a temperature on known answers, so that confidence matches accuracy."""
