#!/usr/bin/env bash
# What P1's reviewers asked for: the trend in N, not two points of it.
# Claim: none; final score against N, beside the batch, the iterations and the gradient steps that come with each N.
# Grid:  Atari-10 x N {1, 2, 4, …, 1024} (ours) at T = 128 x 5 seeds, 100M steps whatever N.
# Cost:  550 runs, 55 billion steps: 33,000 A100-hours at P1's own speed; 250 of the runs are scaling_data's.
. "$(dirname "$0")/lib.sh"
GAMES=${GAMES:-$ATARI_10}
BASE=${BASE:-1x128}
FACTORS=${FACTORS:-8 1 64 1024 16 2 128 4 256 32 512} # in an order that shows the trend early

for seed in $SEEDS; do
    for game in $GAMES; do
        for factor in $FACTORS; do
            shape "$BASE" "$factor"
            run ppo_atari_envpool.py ""
        done
    done
done | launch "$@"
