#!/usr/bin/env bash
# P1, Fig. 12: does a longer rollout need another discount factor?
# Claim: the gain of T x 2 does not depend on gamma, and gamma changes little.
# Grid:  Atari-10 x {base 8x128, T x 2} x gamma {.9, .95, .97, .99, .995} (our choice) x 5 seeds.
# Cost:  500 runs, 50 billion steps: 30,000 A100-hours. 100 of the runs are also in scaling_data.
# Draws: curves at the base and at T x 2; the final IQM against gamma.
. "$(dirname "$0")/lib.sh"
GAMES=${GAMES:-$ATARI_10}
BASE=${BASE:-8x128}
GAMMAS=${GAMMAS:-0.9 0.95 0.97 0.99 0.995}
bases_are "$BASE" --gamma 0.99
varies num_steps gamma

for seed in $SEEDS; do
    for game in $GAMES; do
        for gamma in $GAMMAS; do
            for factor in 1 2; do
                set_n_by_t "$BASE" 1 $factor
                run "$(script_of "$game")" "_g$gamma" --gamma "$gamma"
            done
        done
    done
done | launch "$@"
