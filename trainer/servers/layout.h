/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_SERVERS_LAYOUT_H
#define MR_TRAINER_SERVERS_LAYOUT_H
/* Placement of a model's variables: each in one piece or, by a partitioner, split along its first
 * axis, with the pieces assigned to the servers in turn. Coordinator and workers compute the same
 * layout independently.
 *
 *     fixed_shards(n)                    n pieces
 *     min_size(bytes, max_shards)        as many as possible with at least `bytes` bytes each
 *     max_size(bytes)                    as few as possible with at most `bytes` bytes each
 *
 * thread   one at a time per object */
#include "trainer/model/model.h"

typedef struct mr__piece {
    size_t variable;
    size_t at;   /* its first value, among those of all variables in the model's order */
    size_t n;    /* values */
    size_t rows; /* along the first axis; 1 for a scalar */
    size_t first_row;
    size_t server;
    bool is_part; /* of a variable that was split */
} mr__piece;

typedef struct mr__layout {
    mr__piece *v; /* in the order in which every server stores its own */
    size_t n, capacity;
    size_t n_values; /* of the model */
} mr__layout;

/* partitioner NULL: nothing is split. *l is overwritten, and reset also after a failure.
 * errors   MR_INVALID_ARGUMENT, with line and caret: no such partitioner, bad arguments */
mr_code mr__layout_make(mr__layout *l, const mr_model *m, const char *partitioner, size_t n_servers,
                        mr_status *st) MR_NODISCARD;
void mr__layout_reset(mr__layout *l);
/* Checks that text is a valid partitioner. errors: as above */
mr_code mr__partitioner_check(const char *text, mr_status *st) MR_NODISCARD;

/* A set of values: those of all variables, of those whose gradients or changes are pushed, or of
 * those that the optimizer changes. */
typedef enum mr__which { MR__ALL_VALUES, MR__PUSHED_VALUES, MR__LEARNED_VALUES } mr__which;
bool mr__is_meant(const mr_variable *v, mr__which which);

/* Copies values between `model` (of all variables, in the model's order) and those of one server.
 * Returns the number of the server's values; packed NULL: only counts. */
size_t mr__layout_pack(const mr__layout *l, const mr_model *m, size_t server, mr__which which,
                       const float *model, float *packed);
size_t mr__layout_unpack(const mr__layout *l, const mr_model *m, size_t server, mr__which which,
                         float *model, const float *packed);
#endif
