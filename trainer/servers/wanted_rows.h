/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_SERVERS_WANTED_ROWS_H
#define MR_TRAINER_SERVERS_WANTED_ROWS_H
/* Determines which rows of large variables a step reads, so that only these are transferred: the
 * rows of an embedding that the batch's ids select. Known before the step if the ids are features
 * of the model, and nothing else reads the variable: no penalty, no other layer.
 *
 * thread   one at a time per object */
#include <jansson.h>
#include "trainer/loop/fit_run.h"
#include "trainer/servers/layout.h"

typedef struct mr__wanted_of {
    bool is_part;   /* these rows; else all of the variable */
    uint32_t *rows; /* ascending, without duplicates */
    size_t n, capacity;
} mr__wanted_of;

typedef struct mr__wanted_rows {
    mr__wanted_of *v; /* one per variable */
    size_t n;
    void *ids; /* scratch memory */
    size_t capacity;
} mr__wanted_rows;

/* For the batch that x has taken; w must be zeroed before the first call. */
mr_code mr__wanted_find(mr__wanted_rows *w, const mr__run *x, mr_status *st) MR_NODISCARD;
void mr__wanted_reset(mr__wanted_rows *w);

/* Builds the request to a server: for each of its pieces, in order, adds -1 (all) or a number of
 * rows to `counts`, and the numbers of these rows within it to `rows`, stored as floats. *n_rows:
 * their number; *n_values: number of values in the answer. rows has room for as many entries as the
 * model has values. errors MR_RESOURCE_EXHAUSTED */
mr_code mr__wanted_ask(const mr__wanted_rows *w, const mr__layout *l, size_t server, json_t *counts,
                       float *rows, size_t *n_rows, size_t *n_values, mr_status *st) MR_NODISCARD;
/* Copies the received values to their place in `model`, all variables' values in the model's order.
 * Rows that were not requested are unchanged. */
void mr__wanted_place(const mr__wanted_rows *w, const mr__layout *l, size_t server, float *model,
                      const float *came);
#endif
