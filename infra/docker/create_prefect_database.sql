-- A separate database for Prefect. Postgres runs this once, when its data folder is empty.
CREATE DATABASE prefect;
