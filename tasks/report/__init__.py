"""Reports of runs: data from the database and the frame cache, rendered as one HTML file."""
