"""What every test needs before it imports torchvision."""

import torch

# The torchvision at hand may be built for another torch, and then lacks the C++ operators that its import looks up.
_TORCHVISION = torch.library.Library("torchvision", "FRAGMENT")
for _name, _schema in (
    ("nms", "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"),
    ("qnms", "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"),
):
    if not hasattr(torch.ops.torchvision, _name):
        _TORCHVISION.define(_schema)
