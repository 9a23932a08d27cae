#!/usr/bin/env bash
# P1's reviewers: the trend in N over eleven values.
# Claim: none of P1's. Tested: does the score rise with N, and does N beyond 256 and 512 still gain?
# Grid:  Atari-10 x N {1, 2, 4, …, 1024} (our choice) at T = 128 x 5 seeds, 100M steps for every N.
# Cost:  550 runs, 55 billion steps: 33,000 A100-hours. 250 of the runs are also in scaling_data.
# Draws: final score against N; `_curves`. The printed table has the batch, the iterations and the gradient steps of
#        each N.
. "$(dirname "$0")/lib.sh"
GAMES=${GAMES:-$ATARI_10}
BASE=${BASE:-1x128}
FACTORS=${FACTORS:-8 1 64 1024 16 2 128 4 256 32 512} # in an order that shows the trend early
set_n_by_t "$BASE" "${FACTORS%% *}" # the first factor is that of P1's base
bases_are "${N}x$T"
varies num_envs

for seed in $SEEDS; do
    for game in $GAMES; do
        for factor in $FACTORS; do
            set_n_by_t "$BASE" "$factor"
            run "$(script_of "$game")" ""
        done
    done
done | launch "$@"
