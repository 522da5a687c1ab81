"""A training that knows nothing of Ray: it takes the GPU that it finds."""

import sys
import time

import food
import torch

epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
device = "cuda" if torch.cuda.is_available() else "cpu"
train, check = food.loaders(batch_size=32)
model = food.network().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
print(f"trains on {torch.cuda.get_device_name() if device == 'cuda' else 'CPUs'}", flush=True)
for epoch in range(epochs):
    begin = time.time()
    food.epoch(model, optimizer, train, device)
    print(f"epoch {epoch}: accuracy {food.accuracy(model, check, device):.3f}, {time.time() - begin:.1f} s", flush=True)
