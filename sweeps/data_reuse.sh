#!/usr/bin/env bash
# P1, Fig. 1c: more passes over each batch.
# Claim: 8 epochs cost performance at the base. Doubling N undoes the loss; doubling T undoes less of it.
# Grid:  Atari-10 x epochs {4, 8, 16} x {base 8x128, N x 2, T x 2} x 5 seeds.
# Cost:  450 runs, 45 billion steps: 27,000 A100-hours. 150 of the runs are also in scaling_data.
# Draws: curves by epochs; the final IQM against epochs.
. "$(dirname "$0")/lib.sh"
GAMES=${GAMES:-$ATARI_10}
BASE=${BASE:-8x128}
EPOCHS=${EPOCHS:-4 8 16}
bases_are "$BASE" --update-epochs "${EPOCHS%% *}"
varies num_envs num_steps update_epochs

for seed in $SEEDS; do
    for game in $GAMES; do
        for epochs in $EPOCHS; do
            for factors in "1 1" "2 1" "1 2"; do
                set_n_by_t "$BASE" $factors
                run "$(script_of "$game")" "_e$epochs" --update-epochs "$epochs"
            done
        done
    done
done | launch "$@"
