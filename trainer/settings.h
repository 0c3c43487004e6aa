/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_SETTINGS_H
#define MR_TRAINER_SETTINGS_H
/* What a model, a loss and an optimizer were given, as named texts: "dense/activation" is "relu".
 * Defaults are included, so that texts with the same meaning have the same settings.
 *
 * thread   one at a time per list */
#include "trainer/component.h"

typedef struct mr__setting {
    char *name, *value;
} mr__setting;

/* Zeroed: empty. A name may occur more than once. */
typedef struct mr__settings {
    mr__setting *v;
    size_t n, capacity;
} mr__settings;

mr_code mr__settings_add(mr__settings *s, const char *name, const char *value,
                         mr_status *st) MR_NODISCARD;
/* Adds `name` with the value `kind`, then NAME/PARAMETER for each parameter that has a text. params
 * NULL: none. */
mr_code mr__settings_add_table(mr__settings *s, const char *name, const char *kind,
                               const mr_param *params, const void *values,
                               mr_status *st) MR_NODISCARD;
void mr__settings_drop(mr__settings *s);

/* Calls fn for each setting that differs; NULL: it is not there. The parameters of something that
 * only one list has, or that is of another kind, are left out. */
mr_code mr__settings_compare(const mr__settings *now, const mr__settings *before,
                             void (*fn)(void *ctx, const char *name, const char *now,
                                        const char *before),
                             void *ctx, mr_status *st) MR_NODISCARD;
#endif
