"""Commands that show rows of runs: results, descriptions, search; and their output formats."""
