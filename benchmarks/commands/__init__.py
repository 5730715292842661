"""The commands of the benchmarks; each imports what it measures when it runs, so that `--help` is fast."""
