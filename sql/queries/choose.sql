-- Select jobs from the temporary table `manifest_jobs` (job_id, job_digest, task, subtask): those in the temporary table
-- `named`, and those with the given outcomes under a spec. The remaining conditions, of which the user's SQL is the
-- last, filter these. Rows for another question than the manifest's are ignored.
-- Parameters: $1 dataset, $2 spec_id; $3 whether to select all jobs; $4 failed, $5 their code; $6 missing; $7 labelled,
-- $8 their label, $9 their margin's upper bound; $10 run_id, $11 task, $12 since, $13 until. Null does not filter.
-- Fills the temporary table `chosen`: the job's row in the manifest, state, code, and the run that wrote its result.
INSERT INTO chosen
WITH job AS (
    SELECT
        manifest_jobs.row, manifest_jobs.job_id, coalesce(ended.state, 'missing') AS state,
        manifest_jobs.task, manifest_jobs.subtask,
        named.job_id IS NOT NULL AS is_named,
        {columns}
    FROM manifest_jobs
    LEFT JOIN named ON named.job_id = manifest_jobs.job_id
    LEFT JOIN reelabel.job_state AS ended
        ON ended.dataset = $1::text
        AND ended.spec_id = $2::text
        AND ended.job_id = manifest_jobs.job_id
        AND ended.job_digest = manifest_jobs.job_digest
)
SELECT row, state, code, run_id
FROM job
WHERE (
    $3::boolean
    OR is_named
    OR ($4::boolean AND state = 'failed' AND ($5::text IS NULL OR code = $5))
    OR ($6::boolean AND state = 'missing')
    OR (
        $7::boolean AND state = 'labelled'
        AND ($8::text IS NULL OR label = $8)
        AND ($9::double precision IS NULL OR margin < $9)
    )
)
AND ($10::uuid IS NULL OR run_id = $10 OR ($6 AND state = 'missing'))
AND ($11::text IS NULL OR task = $11)
AND ($12::timestamptz IS NULL OR created_at >= $12 OR ($6 AND state = 'missing'))
AND ($13::timestamptz IS NULL OR created_at < $13 OR ($6 AND state = 'missing'))
AND (
{where}
)
