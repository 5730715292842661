-- Prefect keeps its own tables apart from ours. Run once, by Postgres, when its folder is empty.
CREATE DATABASE prefect;
