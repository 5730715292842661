"""Measures planning, audits and writing for millions of jobs, without videos."""
