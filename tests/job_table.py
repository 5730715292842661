"""A table of a few jobs, without a manifest."""

import numpy as np

from tasks.manifest.digests import jobs_to_rows
from tasks.manifest.media import max_media
from tasks.manifest.table import JobTable, _with_locality_hash


def job_table(jobs):
    frame = _with_locality_hash(jobs_to_rows(jobs))
    return JobTable(
        here=np.ones(len(jobs), np.bool_),
        in_words=np.array([not job.choices for job in jobs], np.bool_),
        media=max_media(frame),
        _parts=(lambda: frame,),
    )
