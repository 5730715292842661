"""Cost of planning, leasing, audits and writing for millions of jobs, without a video."""
