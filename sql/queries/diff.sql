-- Compare two answers to each job: those of a run with those of an earlier run, or, if that is null, with those that
-- it replaced. Answers in words are left out.
-- Parameters: run_id, earlier_run_id. Rows: job_id, task, is_same_question, labels and margins before and after.
WITH answer AS (
    SELECT run_id, NULL::uuid AS replaced_by, job_id, job_digest, task, label, margin, created_at
    FROM reelabel.result
    WHERE run_id IN (:run_id, :earlier_run_id) AND label IS NOT NULL
    UNION ALL
    SELECT run_id, replaced_by, job_id, job_digest, task, label, margin, created_at
    FROM reelabel.result_history
    WHERE (run_id IN (:run_id, :earlier_run_id) OR replaced_by = :run_id) AND label IS NOT NULL
),
after AS (
    SELECT DISTINCT ON (job_id) * FROM answer
    WHERE run_id = :run_id
    ORDER BY job_id, created_at DESC
),
before AS (
    SELECT DISTINCT ON (job_id) * FROM answer
    WHERE run_id = CAST(:earlier_run_id AS uuid)
    OR (CAST(:earlier_run_id AS uuid) IS NULL AND replaced_by = :run_id AND run_id <> :run_id)
    ORDER BY job_id, created_at DESC
)
SELECT
    after.job_id,
    after.task,
    before.job_digest = after.job_digest AS is_same_question,
    before.label AS label_before,
    after.label AS label_after,
    before.margin AS margin_before,
    after.margin AS margin_after
FROM after JOIN before USING (job_id)
ORDER BY after.job_id
