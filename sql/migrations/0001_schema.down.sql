-- Drops all tables, including the results. The schema itself stays, with the rights granted by roles.sql.
-- Locks: ACCESS EXCLUSIVE on all of Reelabel's tables.

DROP TABLE reelabel.live_query, reelabel.live_frames, reelabel.live_session;
DROP TABLE reelabel.arrival, reelabel.evaluation, reelabel.route, reelabel.calibration;
DROP TABLE reelabel.shard, reelabel.plan;
DROP SEQUENCE reelabel.fence;
DROP VIEW reelabel.job_state;
DROP TABLE reelabel.description_chunk, reelabel.description, reelabel.chunk, reelabel.failure, reelabel.result_history, reelabel.result, reelabel.run_spec, reelabel.run, reelabel.spec;
