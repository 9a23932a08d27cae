"""What TensorBoard shows beside the curves: a description of each tag, the arguments of a run, its command.

Nothing here is needed to read the numbers. The descriptions open at the "i" of a card below SCALARS; the cards below
TIME SERIES have none. tensorboard is imported when a function needs it. Python 3.8.
"""

import json
from typing import Any, Dict, List

# One line each, with how the number can mislead; docs/diagnostics.md has the definitions. A tag that is not here has
# the line of its parent: diagnostics/weight_norm/actor that of weight_norm.
OF_CHARTS = {
    "episodic_return": "mean raw return of the last 100 finished episodes; early on, and with many environments, only "
    "short ones have finished (see min_episodes)",
    "episodic_length": "mean steps of the last 100 finished episodes; early on only short ones have finished",
    "episodes": "episodes finished since the start, in all environments",
    "min_episodes": "the fewest episodes that any environment has finished; below 2 returns are mostly of short ones",
    "reward": "mean raw reward per step since the last point; no lag, but no score: it ignores how long episodes last",
    "SPS": "environment steps per second since the last point, training and diagnostics included",
    "learning_rate": "the learning rate of the last update",
    "gradient_steps": "steps of the optimiser since the start; the x-axis counts environment steps",
    "num_envs": "parallel environments of the last batch, under --schedule",
    "num_steps": "steps of each environment in the last batch, under --schedule",
    "epsilon": "the chance of a random action in the last step of the rollout",
    "intrinsic_reward": "mean error of the predictor since the last point, before it is divided by its running unit",
    "rooms": "rooms that the game has shown in any environment since the start, read from the console's memory",
    "eval_episodic_return": "mean return of evaluation episodes on levels that were never trained on",
    "eval_train_return": "mean return of evaluation episodes on the training levels, played as those on unseen levels",
    "final_return": "mean return of the evaluation episodes (--eval-episodes), as in done.json",
    "generalization_gap": "eval_train_return minus eval_episodic_return; its noise is that of both",
}
OF_LOSSES = {
    "policy_loss": "PPO's clipped surrogate loss; its size says nothing about learning",
    "value_loss": "half the squared error of the values; in the units of the returns, so it grows with them",
    "int_value_loss": "half the squared error of the intrinsic values",
    "fwd_loss": "error of RND's predictor on the rows that it learns from",
    "td_loss": "squared error of the Q values of the actions taken",
    "q_values": "mean Q value of the actions taken; above the returns it tells of overestimation",
    "entropy": "mean entropy of the policy, in nats",
    "approx_kl": "KL from the policy that collected the batch, estimator k3; of all minibatches, so it lags the update",
    "old_approx_kl": "KL from the policy that collected the batch, estimator k1: unbiased, noisy, can be negative",
    "kl": "KL from the policy that collected the batch, in closed form",
    "clipfrac": "share of rows whose policy ratio is clipped",
    "explained_variance": "1 - var(returns - values) / var(returns): 1 is perfect, below 0 worse than their mean",
    "grad_norm": "norm of the gradient before it is clipped",
}
OF_NETWORK = {
    "feature_rank": "singular directions that hold 99 % of the energy of the last hidden layer; at most the number of "
    "rows, so compare batch sizes in probe/",
    "dormant_neurons": "percent of units with almost no activity; a dormant unit can wake up again",
    "dormant_neurons/zero_fraction": "share of activations that are exactly zero",
    "weight_norm": "L2 norm of the parameters; larger layers have larger norms",
    "gradient_kurtosis": "kurtosis of the log absolute gradient entries; entries near zero dominate it, so read "
    "zero_fraction too",
    "ess": "effective sample size of the update's importance ratios, in percent of the rows: 100 if nothing changed",
    "ess/samples": "effective sample size of the update's importance ratios, in rows",
    "policy_variance": "variance of the action probabilities across states: 0 if the policy ignores the state",
}
OF_OUTER = {
    "kl_behavior": "KL(collected with || updated) of the policies, exact, the mean over the batch's states, in nats",
    "ddr": "samples for each nat of kl_behavior (Beukman et al. 2026), sums over the last tenth of the curve's points; "
    "in Procgen and RND of one point. Large steps have few",
    "plateau": "1 if the return has stopped rising while KL and gradient stay up: steps too long for their noise. "
    "Noisy returns hide a slow rise",
    "grad_noise_scale": "samples at which noise and gradient of the policy's loss are equally long, between groups "
    "of environments, before the update; one measurement is noisy: average noise and signal first",
    "grad_noise_scale/envs": "the same in environments",
    "grad_noise_scale/inner": "the same between shuffled rows, which ignores that an episode's steps are correlated",
    "grad_noise_scale/dominated": "1 if noise swamps the gradient: the scale is above what this batch can measure",
    "grad_noise_scale/signal": "unbiased estimate of the squared gradient; can be negative",
    "grad_noise_scale/noise": "unbiased estimate of the variance of one sample's gradient, summed over the parameters",
    "greedy_churn": "share of the batch in which the update changed the greedy action",
}
DESCRIPTIONS = {
    **{f"charts/{name}": text for name, text in OF_CHARTS.items()},
    **{f"losses/{name}": f"{text}. Mean over all minibatches since the last point" for name, text in OF_LOSSES.items()},
    **{f"diagnostics/{name}": f"{text}. On the whole batch" for name, text in OF_NETWORK.items()},
    **{f"probe/{name}": f"{text}. On a sample of fixed size" for name, text in OF_NETWORK.items()},
    **{f"outer/{name}": text for name, text in OF_OUTER.items()},
}
SORTED_BY = ("env_id", "num_envs", "num_steps", "minibatch_size", "update_epochs", "learning_rate", "seed")
SHOWN = ("env_id", "num_envs", "num_steps", "learning_rate", "seed")  # the table has columns for these from the start
FINAL_RETURN = "charts/final_return"  # from done.json: a column of the table of runs, and no curve
SHOWN_BESIDE = (FINAL_RETURN, "charts/episodic_return", "charts/SPS")


def description(tag: str) -> str:
    """The line of a tag, or of the nearest parent that has one; "" if none has."""
    while tag and tag not in DESCRIPTIONS:
        tag = tag.rpartition("/")[0]
    return DESCRIPTIONS.get(tag, "")


def cards(manifest: Dict[str, Any], run_name: str) -> List[Any]:
    """Summaries, protobufs of tensorboard, that are written once a run: its arguments, by which TensorBoard's table of
    runs (HParams) sorts, filters and colours, and a text with its command and commit."""
    from tensorboard.plugins.hparams import plugin_data_pb2
    from tensorboard.plugins.hparams import summary_v2 as hparams
    from tensorboard.plugins.text import summary_v2 as text

    arguments = manifest["arguments"]
    values = {name: arguments[name] for name in SORTED_BY if arguments.get(name) is not None}
    values["batch_size"] = arguments["num_envs"] * arguments["num_steps"]
    metrics = [tag for tag in SHOWN_BESIDE if tag != FINAL_RETURN or arguments.get("eval_episodes")]
    config = hparams.hparams_config_pb(
        hparams=[hparams.HParam(name) for name in values], metrics=[hparams.Metric(tag) for tag in metrics]
    )
    content = config.value[0].metadata.plugin_data
    data = plugin_data_pb2.HParamsPluginData.FromString(content.content)
    for info in data.experiment.hparam_infos:
        if hasattr(info, "differs"):  # not before tensorboard 2.15, which shows them all
            info.differs = info.name in SHOWN  # TensorBoard sorts by this, then by name, and shows the first five
    content.content = data.SerializeToString()
    commit = f"{manifest['git']['commit'] or 'unknown'}{' and changes' if manifest['git']['dirty'] else ''}"
    command = manifest["command"].replace(" --", " \\\n      --")  # a line a flag: TensorBoard does not wrap code
    shown = json.dumps(arguments, indent=1).replace("\n", "\n    ")  # four spaces: code in Markdown
    words = f"    {command}\n\ncommit {commit}\n\n    {shown}"
    return [config, hparams.hparams_pb(values, trial_id=run_name), text.text_pb("run", words)]


def final_card(final_return: float) -> Any:
    """The summary from which TensorBoard's table of runs takes the final return."""
    from tensorboard.plugins.scalar import summary_v2 as scalar

    return scalar.scalar_pb(FINAL_RETURN, final_return, description(FINAL_RETURN))


def is_final_card(event: Any) -> bool:
    """Whether an Event holds the summary of `final_card`."""
    return any(value.tag == FINAL_RETURN for value in event.summary.value)
