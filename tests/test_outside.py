"""Numbers that others publish for the same functions: what two programs agree on is not one's own mistake.

rlax (google-deepmind/rlax @4c5d25b, rlax/_src/multistep_test.py and policy_gradients_test.py): the inputs and the
expected values of its tests of truncated GAE, lambda-returns and the clipped surrogate loss.
Sokar et al. (google/dopamine @9f616b9, labs/redo/weight_recyclers.py): their definition of dormant neurons, by loops.
"""

import numpy as np
import pytest
import torch
from test_targets import MODULES as PPO_SCRIPTS
from test_targets import batch_of, loss_of

import metrics
import ppo_atari_envpool
import ppo_envpool
import ppo_isaacgym
import ppo_procgen
import ppo_rnd_envpool
import pqn_atari_envpool

GAE = {  # lambda: the advantages of two sequences, of which the second ends at its fourth step
    1.0: [[-1.45118, -4.4557, 2.5396, 0.5249, -0.49], [3.0, 2.0, 1.0, 0.0, -4.9]],
    0.7: [[-0.676979, -5.248167, 2.4846, 0.6704, -0.49], [2.2899, 1.73, 1.0, 0.0, -4.9]],
    0.4: [[0.56731, -6.042, 2.3431, 0.815, -0.49], [1.725, 1.46, 1.0, 0.0, -4.9]],
}


ALL_PPO = pytest.mark.parametrize(
    "module", [ppo_atari_envpool, ppo_envpool, ppo_isaacgym, ppo_procgen, ppo_rnd_envpool]
)


def advantages_of(module, rewards, values, ends, gamma, gae_lambda):
    """A script's gae of one environment: values has one more entry than the T rewards; nothing is truncated."""
    steps = len(rewards)
    columns = [rewards, values[:-1], ends, [False] * steps, values[1:], [True] * steps]
    columns = [np.array(column)[:, None] for column in columns]
    columns = [x.astype(np.float32) if x.dtype != bool else x for x in columns]
    if module is not ppo_envpool:  # its rollout is in NumPy
        columns = [torch.from_numpy(x) for x in columns]
    advantages, returns = module.gae(*columns, gamma, gae_lambda)
    assert np.asarray(returns)[:, 0] == pytest.approx(np.asarray(advantages)[:, 0] + values[:-1], abs=1e-5)
    return np.asarray(advantages)[:, 0]


@ALL_PPO
@pytest.mark.parametrize("gae_lambda", GAE)
def test_truncated_gae(module, gae_lambda):
    rewards = [[0.0, 0.0, 1.0, 0.0, -0.5], [0.0, 0.0, 0.0, 0.0, 1.0]]
    values = [[1.0, 4.0, -3.0, -2.0, -1.0, -1.0], [-3.0, -2.0, -1.0, 0.0, 5.0, -1.0]]
    ends = [[False] * 5, [False, False, False, True, False]]
    for reward, value, end, gamma, expected in zip(rewards, values, ends, (0.99, 0.9), GAE[gae_lambda]):
        advantages = advantages_of(module, reward, value, end, gamma, gae_lambda)
        assert advantages == pytest.approx(expected, abs=1e-3)


@PPO_SCRIPTS
def test_clipped_surrogate_loss(module):
    logits = torch.tensor([[1.0, 1.0, 1.0], [2.0, 0.0, 0.0], [-1.0, -2.0, -3.0]])
    old = torch.tensor([[1.0, 1.0, 1.0], [2.0, 0.0, 0.0], [-3.0, -2.0, -1.0]])
    actions, ones = torch.tensor([0, 1, 2]), torch.ones(3)
    logprobs = old.log_softmax(-1).gather(-1, actions[:, None]).squeeze(-1)
    for sign, expected in ((1.0, -0.17117467), (-1.0, 0.19333333)):
        advantages = sign * torch.tensor([0.3, 0.2, 0.1])
        columns = {"actions": actions, "values": ones, "returns": ones, "valid": ones.bool(), "logprobs": logprobs}
        mb = batch_of(module, advantages=advantages, **columns)
        loss, _ = loss_of(module, logits, ones, mb, 0.2, 0.0, 0.0)
        assert loss.item() == pytest.approx(expected, abs=1e-4)


def test_lambda_returns():
    """Each step has a discount of its own: Q(lambda) with it, one step at a time from the end."""
    rewards = [[1.0, 0.0, -1.0, 0.0, 1.0], [0.5, 0.8, -0.7, 0.0, 2.1]]
    discounts = [[0.5, 0.9, 1.0, 0.5, 0.8], [0.9, 0.5, 0.3, 0.8, 0.7]]
    values = [[3.0, 1.0, 5.0, -5.0, 3.0], [-1.7, 1.2, 2.3, 2.2, 2.7]]
    expected = [[1.6460547, 0.72281253, 0.7375001, 0.6500001, 3.4], [0.7866317, 0.9913063, 0.1101501, 2.834, 3.99]]
    no = torch.zeros(2, 1, dtype=torch.bool)
    for reward, discount, value, returns in zip(rewards, discounts, values, expected):
        following = value[-1]
        for t in reversed(range(5)):
            two = torch.tensor([[reward[t]], [following]])  # the second step's target is what follows: it bootstraps 0
            bootstrap = torch.tensor([[value[t]], [0.0]])
            found = pqn_atari_envpool.q_lambda_returns(two, no, no, bootstrap, discount[t], 0.75)
            following = found[0].item()
            assert following == pytest.approx(returns[t], rel=1e-5)


def test_dormant_neurons_unit_by_unit():
    """Sokar et al.: mean |h| of a unit (of a convolution: a channel) over the mean of its layer; all layers count."""
    generator = torch.Generator().manual_seed(2)
    wide = torch.randn(50, 8, generator=generator).relu() * torch.tensor([1, 1, 1, 0.05, 0.2, 0, 1, 1])
    image = torch.randn(50, 4, 3, 3, generator=generator).relu() * torch.tensor([1, 0.02, 0, 1])[:, None, None]
    for tau in (0.0, 0.1, 0.4):
        dormant = 0
        for layer in (wide, image):
            scores = [float(layer[:, unit].abs().mean()) for unit in range(layer.shape[1])]
            dormant += sum(score / (sum(scores) / len(scores) + 1e-9) <= tau for score in scores)
        assert metrics.dormant_neurons_tau([wide, image], tau) == pytest.approx(100 * dormant / 12)
