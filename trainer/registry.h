/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_REGISTRY_H
#define MR_TRAINER_REGISTRY_H
/* The components of one group: those of the library, then registered ones.
 *
 * thread   any */
#include <pthread.h>
#include "trainer/component.h"

typedef struct mr__registry {
    const char *group;                   /* "loss" */
    const mr_component *const *built_in; /* NULL-ended */
    struct mr__registry *also; /* NULL, or a group whose names are also accepted; checked by the
                                  caller */
    pthread_mutex_t lock;      /* guards the rest */
    const mr_component **registered;
    size_t n, capacity;
} mr__registry;

/* The i-th, NULL after the last. */
const mr_component *mr__registry_at(mr__registry *r, size_t i);
/* Finds the component that e names.
 * errors   MR_INVALID_ARGUMENT, with line and caret: not found */
mr_code mr__registry_find(mr__registry *r, const mr_expr *e, const mr_component **out,
                          mr_status *st) MR_NODISCARD;
/* Finds the component that text names, with or without arguments in parentheses, and parses its
 * parameters, owned: mr__component_free_params.
 * errors   MR_INVALID_ARGUMENT, with line and caret: unknown, bad arguments */
mr_code mr__registry_parse(mr__registry *r, const char *text, const mr_component **c, void **params,
                           mr_status *st) MR_NODISCARD;
/* complete: the descriptor has the mandatory slots of its group.
 * errors   MR_ALREADY_EXISTS · MR_INVALID_ARGUMENT: another ABI version, a bad name or table */
mr_code mr__registry_add(mr__registry *r, const mr_component *c, bool complete,
                         mr_status *st) MR_NODISCARD;
void mr__component_free_params(const mr_component *c, void *params);
#endif
