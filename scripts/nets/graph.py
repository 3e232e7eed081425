"""Message passing: gathers along 16 edges a node, a scattered sum, and the eight largest scores."""

import torch
from torch import nn

NODES, EDGES, WIDTH = 1024, 16, 64


class Graphs(nn.Module):
    """Three rounds of messages between the nodes of each graph."""

    edges: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.messages = nn.ModuleList(nn.Linear(2 * WIDTH, WIDTH) for _ in range(3))
        self.score = nn.Linear(WIDTH, 1)
        generator = torch.Generator().manual_seed(0)
        self.register_buffer("edges", torch.randint(NODES, (2, NODES * EDGES), generator=generator))

    def forward(self, nodes: torch.Tensor) -> torch.Tensor:
        """Return the largest scores of each graph."""
        begin, end = self.get_buffer("edges")
        for message in self.messages:
            pairs = torch.cat([nodes[:, begin], nodes[:, end]], dim=2)
            nodes = torch.zeros_like(nodes).index_add(1, end, message(pairs).relu().to(nodes.dtype))
        scores: torch.Tensor = self.score(nodes).squeeze(2)
        return scores.topk(8).values


model = Graphs()


def example_inputs(batch: int = 8) -> torch.Tensor:
    """Return the features of each node."""
    return torch.randn(batch, NODES, WIDTH)


def loss(output: torch.Tensor, nodes: torch.Tensor) -> torch.Tensor:
    """Return the mean square of the output."""
    return output.float().square().mean()
