"""Import of manifests from other formats: CSV, OpenAI batches, benchmarks, reviews, and data sets of videos."""
