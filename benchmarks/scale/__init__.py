"""Measures planning, leasing, audits and writing for millions of jobs, without videos."""
