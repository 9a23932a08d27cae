#!/usr/bin/env bash
# The runs that judge the rule of scripts/map_rule.py on the two held-out tasks of results/CLAIMS.md.
# Grid:  the default with ten seeds; then, once predictions.csv is there, its other cells. Those that ran are skipped.
# Cost:  200 runs of 100,000 steps: a quarter of an hour of two cores.
#   bash results/held_out/held_out.sh && python scripts/map_rule.py --runs runs/held_out && bash results/held_out/held_out.sh
cells=$(tail -n +2 "$(dirname "$0")/predictions.csv" 2>/dev/null | cut -d, -f1,3-5)
SEEDS=${SEEDS:-1 2 3 4 5 6 7 8 9 10} STEPS=100000 EVAL_EPISODES=50 FLAGS=${FLAGS:---num-logs 20}
GAMES="MiniGrid-DoorKey-8x8-v0 Catch-v0"
. "$(dirname "$0")/../../sweeps/lib.sh"

for game in $GAMES; do
    for cell in 8,128,0.00025 $(grep "^${game%-v0}[,-]" <<<"$cells" | cut -d, -f2-); do
        IFS=, read -r N T rate <<<"$cell"
        for seed in $SEEDS; do
            run ppo_envpool.py "_lr$rate" --minibatch-size 256 --learning-rate "$rate"
        done
    done
done | sort -u | launch "$@"
