"""Whether the tests notice small faults in the code."""
