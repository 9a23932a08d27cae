"""The numbers that CleanRL and RL Zoo publish for small tasks, made again with ppo_envpool.py."""

from analysis.claims import Claims
from analysis.estimates import mean

VARIES = ("num_envs", "num_steps", "minibatch_size", "update_epochs", "learning_rate", "total_timesteps")
FIXED = {}
SOURCES = {1: "CleanRL's", 4: "CleanRL's", 8: "RL Zoo's"}  # by N


def claims(scores):
    found = Claims(scores)
    for config in scores.configs:
        tasks = [task for task in scores.tasks if scores.in_task(task).has(config)]
        for task in tasks:
            for column, quantity in (
                ("episodic_return", "return of the last 100 games of the training"),
                ("final_return", "return of 100 games of the final network"),
            ):
                text = f"{task} at {SOURCES[config['num_envs']]} settings"
                found.estimate(text, mean, [config], column, name="reference", tasks=[task], quantity=quantity)
    return found
