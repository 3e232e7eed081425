"""The times of computing and of communication in, what of the latter the GPUs wait for out."""

import numpy as np

from advisor.records.prediction import FloatArray


def exposed_of_buckets_s(
    backward_s: FloatArray, bucket_s: FloatArray, last_bucket_s: FloatArray, *, bucket_count: int
) -> FloatArray:
    """Gradients travel in buckets while backward still computes others (Li et al., PyTorch Distributed, 2020).

    Buckets come ready at even intervals, the last at the end of backward. Bucket i waits for its own gradients and for
    the link, so all is done at max over i of (ready_i + what is still to send): with equal buckets either the last is
    left over (backward + last bucket), or the link has worked without a pause since the first (backward / count + all).
    """
    all_s = (bucket_count - 1) * bucket_s + last_bucket_s
    done_s = np.maximum(backward_s + last_bucket_s, backward_s / bucket_count + all_s)
    return done_s - backward_s


def exposed_of_units_s(compute_s: FloatArray, link_s: FloatArray, *, unit_count: int) -> FloatArray:
    """Units of a sharded model travel while another computes (Zhao et al., PyTorch FSDP, 2023).

    One unit's share has nothing to hide behind: the first gather of forward, the last reduction of backward.
    """
    alone_s = link_s / unit_count
    return np.maximum(compute_s, link_s - alone_s) + alone_s - compute_s
