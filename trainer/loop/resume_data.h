/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_LOOP_RESUME_DATA_H
#define MR_TRAINER_LOOP_RESUME_DATA_H
/* Where a run that continues from a checkpoint begins to read. It reads on in the order in which
 * the interrupted epoch was read, or it is refused. In state.json:
 *
 *   "data": {"graph": "range(12).batch(4)", "files": 0, "policy": "DATA", "seed": 7,
 *            "seed_given": true, "pass": 0, "step": 2, "rows": 8}
 *
 * With the numbers of processes and replicas of the saved run, its positions are restored. With
 * other numbers the steps done are read again and dropped where they have the same rows: under
 * DATA, in one process, and under OFF after a whole batch. */
#include <jansson.h>
#include "trainer/exchange/checkpoint_state.h"
#include "trainer/loop/fit.h"

/* *out (owned) = the object "data". */
mr_code mr__data_json(const mr_train_event *e, json_t **out, mr_status *st) MR_NODISCARD;
/* Moves the data of the run to where the checkpoint with this state.json was; position NULL: it has
 * none for this worker. *again: the interrupted epoch begins again (mr_fit_opts.restart_epoch).
 * errors   MR_FAILED_PRECONDITION: the data would continue with other records; says what to do ·
 *          those of mr_dist_iterator_restore and of reading */
mr_code mr__data_resume(const mr_train_event *e, const json_t *root, const mr__train_state *s,
                        const void *position, size_t size, bool *again, mr_status *st) MR_NODISCARD;
#endif
