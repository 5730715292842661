-- Frame files behind a run's labels, and the frames decoded for them: by route, and of all routes together (reason
-- null), in which routes may share a file.
-- Parameters: run_id, dataset, spec_id; shown: keyframes shown of a video at most.
-- Rows do not say which segment they are about. Those of one frame file have the same figures, and the same time of
-- decoding, or none where it was cached by then.
WITH label AS (
    SELECT
        coalesce(routed_by, '') AS reason, source_fingerprint, longest_gap_s, keyframe_coverage, keyframes_in_file,
        frames_used, frames_decoded, nullif(decode_ms, 0) AS decode_ms
    FROM reelabel.result
    WHERE run_id = :run_id AND dataset = :dataset AND spec_id = :spec_id
), route AS (
    SELECT reason, frames_decoded, greatest(count(DISTINCT decode_ms), 1) AS files
    FROM label
    GROUP BY
        reason, source_fingerprint, longest_gap_s, keyframe_coverage, keyframes_in_file, frames_used, frames_decoded
), file AS (
    SELECT
        CASE reason WHEN '' THEN 'first' WHEN 'margin' THEN 'pair' ELSE 'dense' END AS shown,
        source_fingerprint, longest_gap_s, keyframe_coverage, keyframes_in_file,
        frames_decoded, greatest(count(DISTINCT decode_ms), 1) AS files
    FROM label
    GROUP BY 1, source_fingerprint, longest_gap_s, keyframe_coverage, keyframes_in_file, frames_used, frames_decoded
), reach AS (
    -- Each frame of a dense sampler is decoded from the keyframe before it, half of a gap on average.
    SELECT greatest((avg(frames_used) - 1) / 2, 1) AS gaps FROM label WHERE reason <> ''
), video AS (
    -- A job that was asked twice has the frames of both files in its row.
    SELECT
        keyframes_in_file, longest_gap_s,
        coalesce(sum(files) FILTER (WHERE shown = 'first'), 0) AS firsts,
        coalesce(sum(files) FILTER (WHERE shown = 'dense'), 0) AS denses,
        coalesce(sum(files) FILTER (WHERE shown = 'pair'), 0) AS pairs,
        sum(files * frames_decoded) FILTER (WHERE shown = 'first') / sum(files) FILTER (WHERE shown = 'first') AS per_first,
        sum(files * frames_decoded) FILTER (WHERE shown = 'dense') / sum(files) FILTER (WHERE shown = 'dense') AS per_dense,
        sum(files * frames_decoded) FILTER (WHERE shown = 'pair') / sum(files) FILTER (WHERE shown = 'pair') AS per_pair
    FROM file
    GROUP BY source_fingerprint, longest_gap_s, keyframe_coverage, keyframes_in_file
), cost AS (
    -- Where no other job tells the two files apart, the first one has the keyframes, as far as they are shown.
    SELECT
        greatest(firsts, denses, pairs) AS videos,
        pairs * coalesce(per_pair, 0) + greatest(firsts - pairs, 0) * coalesce(per_first, 0)
            + greatest(denses - pairs, 0) * coalesce(per_dense, 0) AS frames,
        coalesce(per_dense, per_pair - coalesce(per_first, least(keyframes_in_file, :shown))) AS dense,
        nullif(longest_gap_s * least(keyframes_in_file, gaps), 0) AS extent_s
    FROM video, reach
), known AS (
    -- Where the dense sampler was not used, its cost is to that elsewhere as the seconds that it would decode.
    SELECT videos, frames, dense, coalesce(extent_s, avg(extent_s) OVER (), 1) AS extent_s FROM cost
)
SELECT reason, sum(files) AS videos, sum(files * frames_decoded) AS frames, NULL::numeric AS dense_frames
FROM route
GROUP BY reason
UNION ALL
SELECT
    NULL, sum(videos), sum(frames),
    sum(videos * extent_s) * sum(videos * dense) / nullif(sum(videos * extent_s) FILTER (WHERE dense IS NOT NULL), 0)
FROM known
