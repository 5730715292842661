"""Manifests made of other layouts: CSV, OpenAI batches, benchmarks, reviews, and data sets of videos."""
