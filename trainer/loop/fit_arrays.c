/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/loop/fit_arrays.h"
#include <inttypes.h>
#include "pipeline/ops/batch.h"
#include "pipeline/ops/sequence.h"
#include "pipeline/ops/sources.h"

enum { BATCH_SIZE = 32, MOST_COLUMNS = 3 };

static mr_code check(const mr_fit_arrays *a, mr_status *st)
{
    const mr_array *const all[] = {a->x, a->y, a->sample_weight};
    static const char *const names[] = {"x", "y", "sample_weight"};
    if (!a->x || !a->y)
        return mr_fail(st, MR_INVALID_ARGUMENT, "fit requires x and y");
    for (size_t i = 0; i < MOST_COLUMNS && all[i]; i++) {
        if (all[i]->storage != MR_DENSE && all[i]->storage != MR_BYTES)
            return mr_fail(st, MR_INVALID_ARGUMENT, "%s is not a dense array", names[i]);
        if (all[i]->rows != a->x->rows)
            return mr_fail(st, MR_INVALID_ARGUMENT, "%s has %zu rows, but x has %zu", names[i],
                           all[i]->rows, a->x->rows);
    }
    if (a->batch_size < 0)
        return mr_fail(st, MR_INVALID_ARGUMENT, "batch_size must be positive, found %" PRId64,
                       a->batch_size);
    if (!(a->validation_split >= 0) || a->validation_split >= 1)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "validation_split must be at least 0 and below 1, found %g",
                       a->validation_split);
    return MR_OK;
}

/* Rows [from, from + n) of all arrays, unbatched. */
static mr_dataset *rows_of(const mr_fit_arrays *a, size_t from, size_t n)
{
    const mr_array *const all[] = {a->x, a->y, a->sample_weight};
    mr_array columns[MOST_COLUMNS];
    size_t used = 0;
    for (; used < MOST_COLUMNS && all[used]; used++)
        mr_array_slice(&columns[used], all[used], from, n);
    mr_dataset *ds = mr_from_arrays(columns, NULL, used);
    while (used > 0)
        mr_array_reset(&columns[--used]);
    return ds;
}

mr_code mr_fit_from_arrays(mr_strategy *s, mr_model *m, const mr_fit_arrays *arrays, mr_loss *loss,
                           mr_optimizer *o, const mr_fit_opts *opts, mr_fit_result *result,
                           mr_status *st)
{
    mr_fit_opts how = opts ? *opts : (mr_fit_opts){0};
    mr_dataset *validation = NULL;
    MR_TRY(check(arrays, st));
    size_t rows = arrays->x->rows, kept = rows;
    int64_t batch = arrays->batch_size ? arrays->batch_size : BATCH_SIZE;
    if (arrays->validation_split > 0 && !how.validation) {
        kept = (size_t)((double)rows * (1 - arrays->validation_split));
        if (kept == 0 || kept == rows)
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "validation_split=%g of %zu examples leaves none for %s",
                           arrays->validation_split, rows, kept ? "validation" : "training");
        how.validation = validation = mr_batch(rows_of(arrays, kept, rows - kept), batch, NULL);
    }
    mr_dataset *ds = rows_of(arrays, 0, kept);
    const mr_shuffle_opts order = {.seed = (int64_t)how.seed, .has_seed = true};
    if (arrays->shuffle != MR_NO && kept > 0)
        ds = mr_shuffle(ds, (int64_t)kept, &order);
    ds = mr_batch(ds, batch, NULL);
    mr_code rc = mr_fit(s, m, ds, loss, o, &how, result, st);
    mr_dataset_unref(ds);
    mr_dataset_unref(validation);
    return rc;
}
