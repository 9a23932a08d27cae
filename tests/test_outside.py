"""Numbers that others publish for the same functions: what two programs agree on is not one's own mistake.

rlax (google-deepmind/rlax @4c5d25b, rlax/_src/multistep_test.py and policy_gradients_test.py): the inputs and the
expected values of its tests of truncated GAE, lambda-returns and the clipped surrogate loss.
"""

import numpy as np
import pytest
import torch
from test_targets import MODULES as PPO_SCRIPTS
from test_targets import batch_of, loss_of

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


@pytest.mark.parametrize("module", [ppo_atari_envpool, ppo_envpool, ppo_isaacgym, ppo_procgen, ppo_rnd_envpool])
@pytest.mark.parametrize("gae_lambda", GAE)
def test_truncated_gae(module, gae_lambda):
    rewards = [[0.0, 0.0, 1.0, 0.0, -0.5], [0.0, 0.0, 0.0, 0.0, 1.0]]
    values = [[1.0, 4.0, -3.0, -2.0, -1.0, -1.0], [-3.0, -2.0, -1.0, 0.0, 5.0, -1.0]]
    ends = [[False] * 5, [False, False, False, True, False]]
    for reward, value, end, gamma, expected in zip(rewards, values, ends, (0.99, 0.9), GAE[gae_lambda]):
        columns = [np.array(x)[:, None] for x in (reward, value[:-1], end, [False] * 5, value[1:], [True] * 5)]
        columns = [x.astype(np.float32) if x.dtype == float else x for x in columns]
        if module is not ppo_envpool:  # its rollout is in NumPy
            columns = [torch.from_numpy(x) for x in columns]
        advantages, _ = module.gae(*columns, gamma, gae_lambda)
        assert np.asarray(advantages)[:, 0] == pytest.approx(expected, abs=1e-3)


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
    """Each sequence has a discount a step: Q(lambda) with that discount, a step at a time from the end."""
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
