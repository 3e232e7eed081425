"""Costs of copies, casts, concatenation and padding, which move elements, and of views, which cost nothing."""

from advisor.ops.registry import Call, Cost, aten, formula, streaming

_COPIES = """
    clone contiguous _to_copy to lift_fresh_copy cat concat concatenate stack hstack vstack dstack
    repeat repeat_interleave tile flip fliplr flipud rot90 tril triu block_diag meshgrid
    pixel_shuffle pixel_unshuffle channel_shuffle native_channel_shuffle _pin_memory
    constant_pad_nd pad reflection_pad1d reflection_pad2d reflection_pad3d
    replication_pad1d replication_pad2d replication_pad3d
    im2col _pack_padded_sequence
    narrow_copy lu_unpack
    view_copy _reshape_copy expand_copy permute_copy transpose_copy t_copy squeeze_copy unsqueeze_copy slice_copy
    select_copy split_copy split_with_sizes_copy unbind_copy unfold_copy diagonal_copy as_strided_copy detach_copy
    _reshape_alias_copy _indices_copy _values_copy indices_copy values_copy crow_indices_copy col_indices_copy
    ccol_indices_copy row_indices_copy _fw_primal_copy _make_dual_copy
    _nested_get_values_copy _nested_view_from_buffer_copy _nested_view_from_jagged_copy
    alias_copy view_as_real_copy view_as_complex_copy _neg_view_copy _conj_copy
    _chunk_cat _foreach_clone sum_to_size _nested_from_padded _nested_tensor_from_mask nested_to_padded_tensor
    _to_dense to_dense to_sparse _to_sparse _padded_dense_to_jagged_forward _jagged_to_padded_dense_forward
    mkldnn_reorder_conv2d_weight to_mkldnn
    slice_scatter select_scatter diagonal_scatter as_strided_scatter
    select_backward slice_backward diagonal_backward _pack_padded_sequence_backward
"""
_ADDING_BACKWARDS = """
    reflection_pad1d_backward reflection_pad2d_backward reflection_pad3d_backward
    replication_pad1d_backward replication_pad2d_backward replication_pad3d_backward
    col2im unfold_backward
"""
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
    _local_scalar_dense item is_same_size _has_same_storage_numel is_pinned sym_size sym_stride sym_numel
    sym_storage_offset
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

# Views reinterpret the same memory.
formula(*aten(_VIEWS), *_BOOKKEEPING, family="view")(lambda call: Cost())
streaming(*aten(_COPIES), family="copy", fusable=True, flops=0)
streaming("aten.roll", family="copy", fusable=True, flops=0, attributes=("dims",))


@formula(*aten(_ADDING_BACKWARDS), family="copy", fusable=True)
def _adding_backward(call: Call) -> Cost:
    """Inputs (grad_output[, input]): several elements of the gradient may be summed into one; the input is not read."""
    return call.reading(call.inputs[0], flops=call.inputs[0].numel)


@formula(*aten("copy _foreach_copy"), family="copy", fusable=True)
def _copy_into(call: Call) -> Cost:
    """Inputs (destinations..., sources...), the same number of each: the destinations are written, not read."""
    return call.reading(*call.inputs[len(call.inputs) // 2 :])
