#!/usr/bin/env bash
# What makes 128 x 8 lose LunarLander, and are there good rates above those of results/map? Final returns.
# Grid:  one change at a time at 2e-3 and 300,000 steps, ten seeds; rates of 2e-3 to 8e-3 that the map has not tried.
# Cost:  215 runs, 92 million steps: 50 minutes of two cores; stagger.py makes ten more runs.
STEPS=300000 EVAL_EPISODES=50 FLAGS=${FLAGS:---num-logs 20}
. "$(dirname "$0")/../../sweeps/lib.sh"
game=LunarLander-v3

# `runs SHAPE RATE STEPS SEEDS FLAG…`: one run a seed.
runs() {
    local STEPS=$3 seed
    shape "$1"
    for seed in $4; do
        run ppo_envpool.py "_lr$2_$STEPS$(tr -d ' ' <<<"${*:5}")" --minibatch-size 256 --learning-rate "$2" "${@:5}"
    done
}

ten="1 2 3 4 5 6 7 8 9 10" five="1 2 3 4 5"
{
    for change in "--no-clip-vloss" "--ent-coef 0" "--no-anneal-lr" "--max-grad-norm 1e9" "--norm-reward" "--gae-lambda 1"; do
        runs 128x8 2e-3 300000 "$ten" $change
    done
    runs 128x32 2e-3 300000 "$ten" --gae-lambda 0.8
    runs 8x128 2e-3 300000 "$ten" --no-clip-vloss
    for rate in 4e-3 8e-3; do
        for shape in 8x32 128x32 32x32 128x8; do runs $shape $rate 300000 "$ten"; done
    done
    runs 8x128 8e-3 300000 "$ten"
    for rate in 2e-3 4e-3 8e-3; do
        runs 128x8 $rate 900000 "$ten"
        runs 8x32 $rate 900000 "$five"
    done
} | launch "$@"
