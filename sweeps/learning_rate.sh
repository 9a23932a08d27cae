#!/usr/bin/env bash
# P1, Fig. 11: does the gain of a larger N need another learning rate?
# Claim: at N x 2 the default learning rate is about the best, and the rate changes little.
# Grid:  Atari-10 x N x 2 (16x128) x learning rate 2.5e-4 times {1/2, 1/sqrt 2, 1, sqrt 2, 2} x 5 seeds.
# Cost:  250 runs, 25 billion steps: 15,000 A100-hours. 50 of the runs are also in scaling_data.
# Draws: curves; the final IQM against the rate.
. "$(dirname "$0")/lib.sh"
GAMES=${GAMES:-$ATARI_10}
BASE=${BASE:-8x128}
RATES=${RATES:-0.000125 0.000176777 0.00025 0.000353553 0.0005}
set_n_by_t "$BASE" 2
bases_are "${N}x$T" --learning-rate 0.00025
varies learning_rate

for seed in $SEEDS; do
    for game in $GAMES; do
        for rate in $RATES; do
            set_n_by_t "$BASE" 2
            run "$(script_of "$game")" "_lr$rate" --learning-rate "$rate"
        done
    done
done | launch "$@"
