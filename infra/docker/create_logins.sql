-- A login for each part, with the password of its URL, and a separate database for Prefect. Postgres runs this once, after
-- sql/roles.sql, when its data folder is empty.
\set owner `sed 's|.*:\(.*\)@.*|\1|' /run/secrets/reelabel_database_owner_url`
\set writer `sed 's|.*:\(.*\)@.*|\1|' /run/secrets/reelabel_database_url`
\set reader `sed 's|.*:\(.*\)@.*|\1|' /run/secrets/reelabel_database_reader_url`
\set prefect `sed 's|.*:\(.*\)@.*|\1|' /run/secrets/prefect_database_url`

CREATE ROLE preparation LOGIN PASSWORD :'owner' IN ROLE reelabel_owner;
CREATE ROLE runs LOGIN PASSWORD :'writer' IN ROLE reelabel_writer;
CREATE ROLE queries LOGIN PASSWORD :'reader' IN ROLE reelabel_reader;
CREATE ROLE prefect LOGIN PASSWORD :'prefect';

CREATE DATABASE prefect OWNER prefect;
REVOKE CONNECT ON DATABASE prefect FROM PUBLIC;
