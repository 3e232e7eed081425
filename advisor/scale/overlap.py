"""Computes how much communication time is not hidden behind computation."""

import numpy as np

from advisor.records.prediction import FloatArray


def exposed_of_buckets_s(
    backward_s: FloatArray, bucket_s: FloatArray, last_bucket_s: FloatArray, *, bucket_count: int
) -> FloatArray:
    """Return the exposed time of sending gradient buckets during backward (Li et al., PyTorch Distributed, 2020).

    Buckets become ready at even intervals, the last one at the end of backward. Bucket i waits for its own gradients
    and for the link, so the end is the maximum over i of (ready_i + time of all buckets still to send). With equal
    buckets, either only the last one is left (backward + last bucket), or the link has been busy since the first one
    (backward / count + all buckets).
    """
    all_s = (bucket_count - 1) * bucket_s + last_bucket_s
    done_s = np.maximum(backward_s + last_bucket_s, backward_s / bucket_count + all_s)
    return done_s - backward_s


def exposed_of_units_s(compute_s: FloatArray, link_s: FloatArray, *, unit_count: int) -> FloatArray:
    """Return the exposed time of moving FSDP units while others compute (Zhao et al., PyTorch FSDP, 2023).

    One unit's share is always exposed: the first all-gather of forward, or the last reduce-scatter of backward.
    """
    alone_s = link_s / unit_count
    return np.maximum(compute_s, link_s - alone_s) + alone_s - compute_s
