"""Commands that show the rows a run has left: results, descriptions, search; and the formats they are written in."""
