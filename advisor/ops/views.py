"""Lists the operators that cost nothing: views, which reinterpret the same memory, and queries about a tensor."""

from advisor.ops.registry import Call, Cost, aten, formula

_VIEWS = """
    view view_as reshape reshape_as _reshape_alias _unsafe_view expand expand_as broadcast_to
    permute transpose t numpy_T mT mH adjoint matrix_H movedim moveaxis swapaxes swapdims
    squeeze unsqueeze flatten unflatten ravel select slice narrow split split_with_sizes chunk tensor_split
    hsplit vsplit dsplit unsafe_split unsafe_split_with_sizes unsafe_chunk
    unbind unfold diagonal linalg_diagonal as_strided detach alias lift_fresh lift
    view_as_real view_as_complex real imag _conj conj _neg_view resolve_conj resolve_neg
    set_ resize resize_as _values _indices values indices crow_indices col_indices ccol_indices row_indices
    _fw_primal _make_dual _unpack_dual slice_inverse _coalesced
    _nested_view_from_buffer _nested_view_from_jagged _nested_get_values _nested_get_offsets _nested_get_lengths
    _nested_get_min_seqlen _nested_get_max_seqlen _nested_get_ragged_idx _nested_get_jagged_dummy
    _local_scalar_dense item is_same_size is_pinned sym_size sym_stride sym_numel sym_storage_offset
    sym_is_contiguous _autocast_to_full_precision _autocast_to_reduced_precision _grad_sum_to_size
    _sparse_coo_tensor_with_dims_and_tensors _linalg_check_errors
    _assert_async _assert_scalar _assert_tensor_metadata sym_constrain_range sym_constrain_range_for_size
    requires_grad retain_grad _version record_stream
"""
_BOOKKEEPING = (
    "prim.device",
    "prim.layout",
    "profiler._record_function_enter_new",
    "profiler._record_function_exit",
    "profiler._record_function_exit._RecordFunction",
)
"""Calls that access no tensor's memory."""


@formula(*aten(_VIEWS), *_BOOKKEEPING, family="view")
def _view(call: Call) -> Cost:
    return Cost(flops=0.0, read_bytes=0.0, write_bytes=0.0)
