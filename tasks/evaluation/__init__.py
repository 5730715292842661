"""Evaluation: compare candidates by accuracy, calibration and cost, with confidence intervals and tests."""
