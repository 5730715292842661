DROP VIEW reelabel.job_state;
