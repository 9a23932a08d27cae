#!/usr/bin/env bash
# P3, Fig. 5 and 8: the step of PPO's outer loop, set by the clip range and by the epochs, at several budgets.
# Claim: the final score is an inverted U in the samples per unit of KL (DDR); its maximum moves to a higher DDR as the
#        budget grows.
# Grid:  Atari-5 (8x128) and 3 tasks of GPU physics (4096x16) x {clip .05 .1 .2 .4 .6 (our choice) at 4 epochs; epochs
#        1 2 8 at clip .1} x budgets {STEPS/10, STEPS/3, STEPS} (our choice) x 5 seeds. COMS="8 32 128 512" adds P3's
#        Fig. 12: PPO-EWMA at each of these ages of the proximal policy x each clip range, at 4 epochs.
# Cost:  960 runs, 46 billion steps. 600 of the runs are on Atari: 17,000 A100-hours.
# Draws: one dot per run against DDR, one colour per budget; `_curves`; `_settings`: the final score by clip range and by
#        epochs.
. "$(dirname "$0")/lib.sh"
GAMES=${GAMES:-$ATARI_5 $PHYSICS}
BUDGETS=${BUDGETS:-$STEPS $((STEPS / 3)) $((STEPS / 10))}
CLIPS=${CLIPS:-0.05 0.1 0.2 0.4 0.6}
EPOCHS=${EPOCHS:-1 2 8}
COMS=${COMS:-}
base_is ppo_ewma_atari_envpool.py "${BASE:-8x128}" --clip-coef 0.1 --update-epochs 4 --total-timesteps "${BUDGETS%% *}"
base_is ppo_envpool.py "${BASE:-8x128}" --clip-coef 0.1 --update-epochs 4 --total-timesteps "${BUDGETS%% *}"
base_is ppo_isaacgym.py "${BASE:-4096x16}" --clip-coef 0.1 --update-epochs 4 --total-timesteps "${BUDGETS%% *}"
varies clip_coef update_epochs total_timesteps ${COMS:+prox_com}

for seed in $SEEDS; do
    for game in $GAMES; do
        script=$(outer_script_of "$game")
        flags=""
        case $script in
            ppo_ewma_atari_envpool.py | ppo_envpool.py) set_n_by_t "${BASE:-8x128}" ;;
            *) set_n_by_t "${BASE:-4096x16}" && flags="--desired-kl None" ;; # a fixed learning rate
        esac
        for STEPS in $BUDGETS; do
            for clip in $CLIPS; do
                run "$script" "_clip${clip}_e4_b$STEPS" --clip-coef "$clip" --update-epochs 4 $flags
                for com in $COMS; do
                    run "$script" "_clip${clip}_com${com}_e4_b$STEPS" --clip-coef "$clip" --prox-com "$com" --update-epochs 4 $flags
                done
            done
            for epochs in $EPOCHS; do
                run "$script" "_clip0.1_e${epochs}_b$STEPS" --clip-coef 0.1 --update-epochs "$epochs" $flags
            done
        done
    done
done | launch "$@"
