"""An application of Ray Serve that answers with a registered model.

The variable MODEL says which: `models:/food/1` is a version, `models:/food@best` is what an alias names at the moment
when a replica starts. Name a version where you want to go back: `gpucl serve rollback` brings the last configuration,
and with it the version, but an alias stays where it is.
"""

import os

import mlflow.artifacts
from ray import serve

from model import predict


# Two replicas: while one is replaced, the other answers. `num_cpus` leaves room for the next training.
@serve.deployment(num_replicas=2, ray_actor_options={"num_cpus": 0.25})
class Food:
    def __init__(self, model):
        # The address and the login of MLflow are there already.
        self.model, self.content = model, mlflow.artifacts.load_dict(f"{model}/model.json")

    async def __call__(self, request):
        if request.method == "GET":
            return {"model": self.model, "dishes": self.content["dishes"]}
        asked = await request.json()
        return {"model": self.model, "predictions": predict(self.content, asked["points"])}


food = Food.bind(os.environ.get("MODEL", "models:/food/1"))
