"""The trained network of ppo_envpool.py as a file that needs nothing of this repository: ONNX, and a JSON about it.

The network's inputs are the entries of an observation as the environment gives them; flattening, one-hot numbers and
--norm-obs are in the file. Python 3.8.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import warnings
from pathlib import Path
from typing import Any, Dict, List, Tuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor

from support.arguments import fail
from support.envs.spaces import Entry


def one_hot(values: Tensor, space: Any) -> Tensor:
    """Integers of a Discrete or MultiDiscrete space, (B, ...) -> (B, the sum of their sizes), float32."""
    sizes = np.ravel(getattr(space, "nvec", getattr(space, "n", 0))).tolist()
    values = values.flatten(1) if values.dim() > 1 else values[:, None]
    below = (values - torch.from_numpy(np.ravel(space.start)).to(values.dtype)).long()
    return torch.cat([F.one_hot(x, size) for x, size in zip(below.unbind(1), sizes)], 1).float()


def columns(entry: Entry, x: Tensor) -> Tensor:
    """What spaces.Entry.columns makes of an entry: (B, ...) -> (B, columns)."""
    if hasattr(entry.space, "start"):
        return one_hot(x, entry.space)
    if entry.image and entry.image.channels_last:
        x = x.movedim(-1, 1)
    return (x.flatten(1) if x.dim() > 1 else x[:, None]).float()


class Policy(nn.Module):
    """The actor of one agent: from the entries of B observations to the outputs (B, A) and the most likely actions.

    outputs: logits or means; actions: (B, ...) in the shape, dtype and range of the action space.
    """

    def __init__(self, agent: Any, action_space: Any) -> None:
        super().__init__()
        self.agent, self.space = agent, action_space

    def forward(self, *parts: Tensor) -> Tuple[Tensor, Tensor]:
        observation = self.agent.observation
        if observation.kind == "index":
            rows = (parts[0] - int(observation.entries[0].space.start))[:, None]
        elif observation.kind == "grid":
            direction, image = parts
            rows = torch.cat([direction[:, None].long(), image.flatten(1).long()], 1)
        else:
            rows = torch.cat([columns(*pair) for pair in zip(observation.entries, parts)], 1)
        outputs = self.agent(rows[None])[0][0]
        return outputs, self.action(outputs)

    def action(self, outputs: Tensor) -> Tensor:
        space, dtype = self.space, torch.from_numpy(np.zeros(0, self.space.dtype)).dtype
        if self.agent.continuous:
            low, high = (torch.from_numpy(np.ravel(bound)) for bound in (space.low, space.high))
            action = outputs.to(torch.promote_types(low.dtype, torch.float32))
            action = torch.minimum(torch.maximum(action, low.to(action.dtype)), high.to(action.dtype))
        else:
            parts = [x.argmax(1) for x in outputs.split(self.agent.actions.sizes, 1)]
            action = torch.stack(parts, 1) + torch.from_numpy(np.ravel(getattr(space, "start", 0)).astype(np.int64))
        return action.to(dtype).unflatten(1, space.shape) if space.shape else action[:, 0].to(dtype)


def example(entry: Entry) -> Any:
    """What an entry of an observation looks like: an array; OneOf's is flattened."""
    from gymnasium import spaces

    if isinstance(entry.space, spaces.OneOf):
        return np.asarray(spaces.flatten(entry.space, entry.space.sample()))
    return np.asarray(entry.space.sample(), entry.space.dtype)


def card(agent: Any, action_space: Any) -> Dict[str, Any]:
    """What the JSON says of the inputs, the outputs and the actions."""
    inputs = []
    for entry in agent.observation.entries:
        x = example(entry)
        name = "/".join(map(str, entry.path)) or "obs"
        of_entry = {"name": name, "path": list(entry.path), "shape": list(x.shape), "dtype": str(x.dtype)}
        inputs.append({**of_entry, "space": str(entry.space)})
    actions: Dict[str, Any] = {"space": str(action_space), "shape": list(action_space.shape)}
    actions["dtype"] = str(action_space.dtype)
    if agent.continuous:
        actions["std"] = agent.actor_logstd[0, 0].exp().tolist()
        actions["low"], actions["high"] = (np.ravel(x).tolist() for x in (action_space.low, action_space.high))
        outputs = "means of independent Gaussians, whose standard deviations are std"
    else:
        actions["sizes"] = list(agent.actions.sizes)
        actions["start"] = np.ravel(getattr(action_space, "start", [0] * len(agent.actions.sizes))).tolist()
        outputs = "logits, side by side, of as many independent categorical variables as there are sizes"
    return {"inputs": inputs, "outputs": outputs, "actions": actions}


def write(agent: Any, action_space: Any, path: Path, about: Dict[str, Any]) -> None:
    """Writes the actor of an agent to `path`, .onnx, and what `card` says, after `about`, beside it as .json.

    Ends the program with one line if it cannot.
    """
    missing = [name for name in ("onnx", "onnxscript") if not importlib.util.find_spec(name)]
    if missing:
        fail(f"--export {path}: {missing[0]} is not installed: expected pip install -r requirements-tasks.txt")
    content = {**about, **card(agent, action_space)}
    examples: List[Any] = [torch.from_numpy(np.stack([example(x)] * 2)) for x in agent.observation.entries]
    batch = torch.export.Dim("batch")
    said = io.StringIO()
    with torch.no_grad(), warnings.catch_warnings(), contextlib.redirect_stdout(said):
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            Policy(agent, action_space).eval(),
            tuple(examples),
            input_names=[x["name"] for x in content["inputs"]],
            output_names=["outputs", "action"],
            dynamic_shapes=(tuple({0: batch} for _ in examples),),
            dynamo=True,
            verbose=False,
        )
    try:
        program.save(str(path), external_data=False)
        path.with_suffix(".json").write_text(json.dumps(content, indent=2) + "\n")
    except OSError as error:
        fail(f"--export {path} ({error.strerror or error}): expected a file in a directory that can be written to")
