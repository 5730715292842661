"""Single requests over HTTP, by how many are asked at once, beside the flow on the same videos."""
