"""A training script as people write them. It can ask for advice itself, or be traced from outside.

    python examples/train.py --epochs 2
    python examples/train.py --advise
    advise examples/train.py --run -- --batch 256

The first trains, on a GPU if there is one. The second asks where this training is cheapest, and stops. The third asks
the same of any script, with no line of it changed.
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def make_model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 7 * 7, 128),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(128, 10),
    )


def make_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-3)


def make_data(sample_count: int) -> TensorDataset:
    """Random images whose label is the brightest of ten bands: it can be learned, and needs no download."""
    images = torch.rand(sample_count, 1, 28, 28)
    labels = images[:, 0, :20].reshape(sample_count, 10, 56).mean(dim=2).argmax(dim=1)
    return TensorDataset(images, labels)


def train(data: TensorDataset, *, epochs: int, batch: int, device: torch.device) -> None:
    model = make_model().to(device)
    optimizer = make_optimizer(model.parameters())
    criterion = nn.CrossEntropyLoss()
    loader = DataLoader(data, batch_size=batch, shuffle=True)
    for epoch in range(epochs):
        total = 0.0
        for images, labels in loader:
            optimizer.zero_grad()
            loss = criterion(model(images.to(device)), labels.to(device))
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.3f}")


def advise(data: TensorDataset, *, epochs: int, batch: int) -> None:
    import advisor

    images, labels = data[:batch]
    answer = advisor.recommend(
        make_model(),
        images,
        loss=lambda output, images: nn.functional.cross_entropy(output, labels[torch.arange(len(images)) % batch]),
        optimizer=make_optimizer,
        mode="training",
        samples=len(data),
        epochs=epochs,
    )
    best = answer.best
    print(f"{best.provider} {best.instance}: ${best.job_usd.mid:.2g}" if best else "nothing fits")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=4096)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--advise", action="store_true", help="say where this training is cheapest")
    arguments = parser.parse_args()
    data = make_data(arguments.samples)
    if arguments.advise:
        advise(data, epochs=arguments.epochs, batch=arguments.batch)
    else:
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        train(data, epochs=arguments.epochs, batch=arguments.batch, device=device)


if __name__ == "__main__":
    main()
