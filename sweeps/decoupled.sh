#!/usr/bin/env bash
# P1, Fig. 5: one encoder for actor and critic, or one for each.
# Claim: separate encoders collapse at the base and recover at N x 2.
# Grid:  Atari-10 x {shared, separate} x {base 8x128, N x 2} x 5 seeds.
# Cost:  200 runs, 20 billion steps: 12,000 A100-hours. 100 of the runs are also in scaling_data.
# Draws: IQM curves; `_games`: separate encoders by game; `_games_shared`: shared ones.
. "$(dirname "$0")/lib.sh"
GAMES=${GAMES:-$ATARI_10}
BASE=${BASE:-8x128}
bases_are "$BASE" --shared-encoder
varies num_envs shared_encoder

for seed in $SEEDS; do
    for game in $GAMES; do
        for factor in 1 2; do
            set_n_by_t "$BASE" $factor
            run "$(script_of "$game")" "" --shared-encoder
            run "$(script_of "$game")" "_separate" --no-shared-encoder
        done
    done
done | launch "$@"
