"""What a version of the model says of the dishes in `dishes.json`, computed from its file, without Serve: a job.

    python predict.py models:/food/1
"""

import json
import pathlib
import sys

import mlflow.artifacts

from model import predict

model = mlflow.artifacts.load_dict(f"{sys.argv[1]}/model.json")
points = json.loads(pathlib.Path("dishes.json").read_text())
print(json.dumps({"model": sys.argv[1], "predictions": predict(model, points)}))
