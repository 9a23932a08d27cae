#!/usr/bin/env bash
# The runs that test the rule of map_rule.py on the two held-out tasks of results/CLAIMS.md.
# Grid:  the default at 100,000 steps with ten seeds; then, once predictions.csv exists, its settings at each budget, with
#        ten seeds, at 2,700,000 steps with three. Finished runs are skipped.
# Cost:  200 runs of 100,000 and of 300,000 steps, 180 of 900,000 and 54 of 2,700,000, 390 million steps: some two hours
#        of two cores.
#   bash results/held_out/held_out.sh && python results/held_out/map_rule.py --runs runs/held_out --predict 300000 900000 2700000
#   bash results/held_out/held_out.sh
given=${SEEDS:-} # default: ten, or three in the longest runs
predictions="$(dirname "$0")/predictions.csv"
EVAL_EPISODES=50 FLAGS=${FLAGS:---num-logs 20}
GAMES=${GAMES:-MiniGrid-DoorKey-8x8-v0 Catch-v0}
BUDGETS=${BUDGETS:-100000 300000 900000 2700000}
. "$(dirname "$0")/../../sweeps/lib.sh"

settings() { # of $game at $STEPS: N,T,RATE lines
    [[ $STEPS != 100000 ]] || echo 8,128,0.00025
    [[ ! -f $predictions ]] || grep "^${game%-v0},$STEPS," "$predictions" | cut -d, -f4-6
}

for STEPS in $BUDGETS; do
    name="" seeds="1 2 3 4 5 6 7 8 9 10"
    [[ $STEPS = 100000 ]] || name="_b$STEPS"
    [[ $STEPS != 2700000 ]] || seeds="1 2 3"
    seeds=${given:-$seeds}
    for game in $GAMES; do
        for setting in $(settings); do
            IFS=, read -r N T rate <<<"$setting"
            for seed in $seeds; do
                run ppo_envpool.py "${name}_lr$rate" --minibatch-size 256 --learning-rate "$rate"
            done
        done
    done
done | awk '!seen[$0]++' | launch "$@"
