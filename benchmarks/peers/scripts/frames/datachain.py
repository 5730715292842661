"""Frames by DataChain: a chain over a column of video files, whose frames it seeks.

https://docs.datachain.ai/references/data-types/videofile
"""

import os

from benchmarks.peers.scripts.job import FrameJob, began, read_job, report


def main() -> None:
    job = read_job(FrameJob)
    os.environ |= {"DATACHAIN_ROOT_DIR": job.folder, "DATACHAIN_NO_ANALYTICS": "1"}
    import datachain as dc  # noqa: PLC0415 - reads its settings when it is imported
    from datachain.query.session import Session  # noqa: PLC0415

    store = {"aws_endpoint_url": job.endpoint, "aws_key": job.key, "aws_secret": job.secret}
    indices = job.indices()

    def take(file: dc.VideoFile) -> int:
        return sum(file.get_frame(index).get_np() is not None for index in indices)

    began()
    with Session("bench", client_config=store) as session:
        names = {uri.rpartition("/")[2] for uri in job.uris}
        folder = job.uris[0].rpartition("/")[0]
        # Without versions: for those, this S3 server lists other ETags of large objects than it serves them with.
        chain = dc.read_storage(f"{folder}/", type="video", session=session, versions=False)
        chain = chain.filter(dc.C("file.path").glob("*.mp4")).settings(
            parallel=job.cores, prefetch=job.cores, cache=True
        )
        for path, frames in chain.map(frames=take).to_iter("file.path", "frames"):
            name = path.rpartition("/")[2]
            if name in names:
                report(f"{folder}/{name}", frames, given=frames)


if __name__ == "__main__":
    main()
