#!/usr/bin/env bash
# P1, Fig. 15: more environments in games with rare rewards.
# Claim: a larger N is equivalent or improves, in each game too, and learns faster.
# Grid:  the seven hard-exploration games of Taiga et al. and Phoenix x {base 8x128, N x 2 4 (our choice)} x 5 seeds.
# Cost:  120 runs, 12 billion steps: 7,200 A100-hours. The 15 runs of Phoenix are also in scaling_data.
# Draws: IQM curves; `_games`: returns and four diagnostics by game.
. "$(dirname "$0")/lib.sh"
GAMES=${GAMES:-Freeway-v5 Gravitar-v5 MontezumaRevenge-v5 Pitfall-v5 PrivateEye-v5 Solaris-v5 Venture-v5 Phoenix-v5}
BASE=${BASE:-8x128}
FACTORS=${FACTORS:-1 2 4}
base_is ppo_atari_envpool.py "$BASE"
varies num_envs

for seed in $SEEDS; do
    for game in $GAMES; do
        for factor in $FACTORS; do
            set_n_by_t "$BASE" "$factor"
            run ppo_atari_envpool.py ""
        done
    done
done | launch "$@"
