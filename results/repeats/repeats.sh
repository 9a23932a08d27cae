#!/usr/bin/env bash
# Ten settings of results/map at 100,000 steps again, with seeds that the map does not have.
# Grid:  settings.csv, drawn with random.Random(0).sample(settings, 10) from all settings in the order of the map's
#        means.csv.
# Cost:  100 runs, ten million steps: some minutes of two cores.
SEEDS=${SEEDS:-101 102 103 104 105 106 107 108 109 110} STEPS=100000 EVAL_EPISODES=50 FLAGS=${FLAGS:---num-logs 20}
settings=$(tail -n +2 "$(dirname "$0")/settings.csv")
. "$(dirname "$0")/../../sweeps/lib.sh"

while IFS=, read -r game N T rate; do
    for seed in $SEEDS; do
        run ppo_envpool.py "_lr$rate" --minibatch-size 256 --learning-rate "$rate"
    done
done <<<"$settings" | launch "$@"
