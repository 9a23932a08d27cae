#!/usr/bin/env bash
# P1, Fig. 6, 13, 14: N and T for PQN, which learns values and has no policy loss.
# Claim: PQN gains little from a larger N.
# Grid:  Atari-10 x {base 8x128, N x 2 4, T x 2 4 (our choice)} x 5 seeds.
# Cost:  250 runs, 25 billion steps: 15,000 A100-hours at P1's speed for PPO.
# Draws: as scaling_data.
. "$(dirname "$0")/lib.sh"
GAMES=${GAMES:-$ATARI_10}
BASE=${BASE:-8x128}
FACTORS=${FACTORS:-2 4}
base_is pqn_atari_envpool.py "$BASE"
varies num_envs num_steps

for seed in $SEEDS; do
    for game in $GAMES; do
        set_n_by_t "$BASE"
        run pqn_atari_envpool.py ""
        for factor in $FACTORS; do
            set_n_by_t "$BASE" "$factor" 1
            run pqn_atari_envpool.py ""
            set_n_by_t "$BASE" 1 "$factor"
            run pqn_atari_envpool.py ""
        done
    done
done | launch "$@"
