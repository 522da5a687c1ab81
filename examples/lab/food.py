"""The lab's data and model: photos of food in eleven classes, and a MobileNetV2 that tells them apart.

With Food-11 as a data set of the cluster (`training/CLASS/*.jpg`, `validation/...`), those photos are used. Without it,
images of the same shape are made on the spot, so that everything runs on a cluster without the data set.
"""

import os
import pathlib

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchvision import datasets, models, transforms

CLASSES = 11


def made(number, seed, side=64):
    """Images whose class is a pattern under noise."""
    patterns = torch.rand(CLASSES, 3, side, side, generator=torch.Generator().manual_seed(0))
    random = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, CLASSES, (number,), generator=random)
    pixels = (patterns[labels] + torch.rand(number, 3, side, side, generator=random)) / 2
    return TensorDataset(pixels - 0.5, labels)


def loaders(batch_size, number=1024):
    """Returns the loaders of the training and of the validation data."""
    folder = pathlib.Path(os.environ["GPUCL_DATA"], "Food-11")
    if (folder / "training").is_dir():
        change = transforms.Compose([transforms.Resize((224, 224)), transforms.ToTensor()])
        train, check = (datasets.ImageFolder(folder / name, change) for name in ("training", "validation"))
    else:
        print(f"{folder} has no data set: images are made on the spot", flush=True)
        train, check = made(number, seed=1), made(number // 4, seed=2)
    return DataLoader(train, batch_size=batch_size, shuffle=True), DataLoader(check, batch_size=batch_size)


def network(dropout=0.5):
    """A MobileNetV2 with a head for the eleven classes."""
    network = models.mobilenet_v2(weights=None)
    network.classifier = nn.Sequential(nn.Dropout(dropout), nn.Linear(network.last_channel, CLASSES))
    return network


def epoch(model, optimizer, loader, device=None):
    """Trains for one epoch."""
    criterion = nn.CrossEntropyLoss()
    model.train()
    for images, labels in loader:
        loss = criterion(model(images.to(device)), labels.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def accuracy(model, loader, device=None):
    """The part of the images whose class was found."""
    model.eval()
    right = number = 0
    with torch.no_grad():
        for images, labels in loader:
            right += (model(images.to(device)).argmax(1) == labels.to(device)).sum().item()
            number += len(labels)
    return right / number
