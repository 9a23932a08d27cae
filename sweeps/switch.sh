#!/usr/bin/env bash
# P3, Fig. 3a: the age of the proximal policy (PPO-EWMA's com) is changed in the middle of a training.
# Claim: the plateau of a low com is the outer step's, not the network's: a higher com resumes learning at once and ends
#        as high as if it had been there all along, and a lower com takes a good policy down to the low plateau.
# Grid:  Atari-5 (8x128) and 3 tasks of GPU physics (4096x16) x com {8, 512} for STEPS/2, and from each checkpoint
#        {the same com, each other} up to STEPS x 5 seeds (coms, games and the place of the switch are our choice). The
#        learning rate is not annealed: at the parents' end it would be 0, and no child could continue at its parent's.
# Cost:  240 runs, 12 billion steps. 150 of the runs are on Atari: 4,500 A100-hours.
#        The launcher starts a child when its parent is done. On Slurm the same line, given again, submits the children.
# Draws: parents and children on one axis, by game; `_games`: returns, KL and gradient norm.
. "$(dirname "$0")/lib.sh"
GAMES=${GAMES:-$ATARI_5 $PHYSICS}
COMS=${COMS:-8 512}
FIXED="--no-anneal-lr"
WHOLE=$STEPS HALF=$((STEPS / 2))
base_is ppo_ewma_atari_envpool.py "${BASE:-8x128}" --prox-com "${COMS%% *}" --total-timesteps $HALF $FIXED
base_is ppo_envpool.py "${BASE:-8x128}" --prox-com "${COMS%% *}" --total-timesteps $HALF $FIXED
base_is ppo_isaacgym.py "${BASE:-4096x16}" --prox-com "${COMS%% *}" --total-timesteps $HALF $FIXED --desired-kl None
varies prox_com total_timesteps resume_from

for seed in $SEEDS; do
    for game in $GAMES; do
        script=$(outer_script_of "$game")
        flags=$FIXED
        case $script in
            ppo_ewma_atari_envpool.py | ppo_envpool.py) set_n_by_t "${BASE:-8x128}" ;;
            *) set_n_by_t "${BASE:-4096x16}" && flags+=" --desired-kl None" ;; # a fixed learning rate
        esac
        for before in $COMS; do
            STEPS=$HALF run "$script" "_com$before" --prox-com "$before" $flags
            parent=$QUOTED_RUNS_DIR/$SWEEP/${game}__n${N}_t${T}_com${before}__s$seed
            for com in $COMS; do
                STEPS=$WHOLE run "$script" "_com${before}_then$com" --prox-com "$com" --resume-from "$parent" $flags
            done
        done
    done
done | launch "$@"
