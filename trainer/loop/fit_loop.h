/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_LOOP_FIT_LOOP_H
#define MR_TRAINER_LOOP_FIT_LOOP_H
/* Shared by the loop of fit and checkpoints. */
#include "trainer/loop/callback_memory.h"
#include "trainer/loop/fit_run.h"

typedef struct mr__fit_loop {
    mr__run run;
    /* over the epoch, or the whole evaluation */
    double loss_sum;                    /* losses of steps times their rows */
    double output_sums[MR_MAX_OUTPUTS]; /* the same for each output */
    int64_t rows;
    bool stop;        /* a callback, or the limit on steps, ended training */
    bool interrupted; /* mr_fit_opts.stopping ended training within this epoch */
    bool pass_over;   /* the data were read to their end: the next epoch restarts them */
    bool between;     /* this epoch is over, the next has not begun */
    bool resumed;     /* within the epoch, by a callback at the beginning */
    bool saw_nan;     /* and logged it */
    bool checked;     /* the structure of all other data was checked */
    bool waits;       /* a callback wants the loss of each step at its end */
    bool saving;      /* a callback saves after this step */
    float last_loss;
    int64_t last_loss_step;
    mr_output_losses last_outputs;
    double began;         /* mr_iter_now */
    int64_t resumed_rows; /* of the resumed epoch, counted before the resumption */
    mr_train_event *now;
    mr__recalled recalled;    /* state of callbacks from a checkpoint */
    char job[MR__LEDGER_JOB]; /* whose ledger is written; "": none */
} mr__fit_loop;
#endif
