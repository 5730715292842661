"""Frames by PrepareVideo, in batches."""

import benchmarks.peers.scripts.counted  # noqa: F401 - the bench counts in decoding processes as well
from benchmarks.peers.scripts.job import FrameJob, began, read_job, report
from reelabel import PrepareVideo


def main() -> None:
    job = read_job(FrameJob)
    prepare = PrepareVideo(
        sampling={"sampler": job.choice, "num_frames": job.frames, "size_multiple_px": 1},
        output_format="numpy",
        processes=job.cores,
        s3={"endpoint_url": job.endpoint, "access_key_id": job.key, "secret_access_key": job.secret},
    )
    began()
    for first in range(0, len(job.uris), 32):
        uris = job.uris[first : first + 32]
        part = {} if job.is_whole else {"start_s": [job.start_s] * len(uris), "end_s": [job.end_s] * len(uris)}
        got = prepare({"video_uri": uris, **part})
        for uri, [video], [meta] in zip(uris, got["video"], got["video_meta"], strict=True):
            report(uri, len(video), given=len(video), error=meta["error"] or "")


if __name__ == "__main__":
    main()
