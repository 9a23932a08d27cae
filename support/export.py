"""The trained network of ppo_envpool.py as a file that needs nothing of this repository: ONNX, and a JSON about it.

The network's inputs are the entries of an observation as the environment gives them; flattening, one-hot numbers and
--norm-obs are in the file. Python 3.8.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import logging
import sys
import warnings
from pathlib import Path
from typing import Any, Dict, Iterable, List, Sequence, Tuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor

from support.arguments import fail
from support.envs.spaces import Entry
from support.reading.files import write_atomically

OUTPUTS = ("outputs", "action")  # of the network, by name


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


def input_names(entries: Sequence[Entry], taken: Iterable[str]) -> List[str]:
    """A name for each entry of an observation: its keys with / between them, and _ behind it where that is taken.

    taken: the names of all other values of the network, among which ONNX needs each name to be the only one. Notes each
    entry whose name is not its keys.
    """
    names: List[str] = []
    for entry in entries:
        keys = name = "/".join(map(str, entry.path)) or "obs"
        while name in {*taken, *names}:
            name += "_"
        if name != keys:
            print(f"note: obs{entry.name} is the input {name} of the network", file=sys.stderr)
        names.append(name)
    return names


def card(agent: Any, action_space: Any, names: Sequence[str]) -> Dict[str, Any]:
    """What the JSON says of the inputs, which have these names, the outputs and the actions. None: no bound."""
    inputs = []
    for name, entry in zip(names, agent.observation.entries):
        x = example(entry)
        of_entry = {"name": name, "path": list(entry.path), "shape": list(x.shape), "dtype": str(x.dtype)}
        inputs.append({**of_entry, "space": str(entry.space)})
    actions: Dict[str, Any] = {"space": str(action_space), "shape": list(action_space.shape)}
    actions["dtype"] = str(action_space.dtype)
    if agent.continuous:
        actions["std"] = agent.actor_logstd[0, 0].exp().tolist()
        for name in ("low", "high"):  # JSON has no infinity
            bounds = np.ravel(getattr(action_space, name)).tolist()
            actions[name] = [bound if np.isfinite(bound) else None for bound in bounds]
        outputs = "means of independent Gaussians, whose standard deviations are std"
    else:
        actions["sizes"] = list(agent.actions.sizes)
        actions["start"] = np.ravel(getattr(action_space, "start", [0] * len(agent.actions.sizes))).tolist()
        outputs = "logits, side by side, of as many independent categorical variables as there are sizes"
    action = "the most likely action, as evaluate.py --greedy takes it; training and evaluate.py draw from outputs"
    return {"inputs": inputs, "outputs": outputs, "action": action, "actions": actions}


def write(agent: Any, action_space: Any, path: Path, about: Dict[str, Any]) -> None:
    """Writes the actor of an agent to `path`, .onnx, and what `card` says, after `about`, beside it as .json.

    Ends the program with one line if it cannot, or if a reader of ONNX cannot load what it would write.
    """
    missing = [name for name in ("onnx", "onnxscript") if not importlib.util.find_spec(name)]
    if missing:
        fail(f"--export {path}: {missing[0]} is not installed: expected pip install -r requirements-tasks.txt")
    entries = agent.observation.entries
    examples: List[Any] = [torch.from_numpy(np.stack([example(x)] * 2)) for x in entries]
    batch = torch.export.Dim("batch")
    said = io.StringIO()
    logging.getLogger("onnxscript").setLevel(logging.ERROR)  # it warns of what it does not optimise
    with torch.no_grad(), warnings.catch_warnings(), contextlib.redirect_stdout(said):
        warnings.simplefilter("ignore")
        program: Any = torch.onnx.export(
            Policy(agent, action_space).eval(),
            tuple(examples),
            output_names=list(OUTPUTS),
            dynamic_shapes=(tuple({0: batch} for _ in examples),),
            dynamo=True,
            verbose=False,
        )
    graph = program.model.graph
    others = [*graph.initializers, *(value.name for node in graph for value in node.outputs)]
    names = input_names(entries, others)
    for value, name in zip(graph.inputs, names):
        value.name = name
    content = program.model_proto.SerializeToString()
    refused = objection(content)
    if refused:
        fail(f"--export {path}: no program could load the network ({refused}): nothing is written")
    text = json.dumps({**about, **card(agent, action_space, names)}, indent=2, allow_nan=False)
    try:
        write_atomically(path, content)
        write_atomically(path.with_suffix(".json"), f"{text}\n".encode())
    except OSError as error:
        fail(f"--export {path} ({error.strerror or error}): expected a file in a directory that can be written to")


def objection(content: bytes) -> str:
    """Why ONNX's checker, or onnxruntime where it is installed, does not take a network; "" if both do."""
    import onnx  # type: ignore[import-not-found, unused-ignore]

    try:
        onnx.checker.check_model(content)
        if importlib.util.find_spec("onnxruntime"):
            import onnxruntime  # type: ignore[import-not-found, import-untyped, unused-ignore]

            onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    except Exception as error:  # each library has its own
        return f"{type(error).__name__}: {error}"
    return ""
