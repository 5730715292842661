"""Saves live sessions, frames to the object store and queries to Postgres, and replays them."""
