/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/streams/reduce_dataset.h"

#include "pipeline/columns/fold.h"
#include "pipeline/engine/run.h"
#include "pipeline/functions/compiler/program_impl.h"
#include "pipeline/functions/compiler/draws.h"

enum { WANT = 1024 };

static mr_code fold_block(mr__fold *f, const mr_block *b, mr_block *made, mr_status *st)
{
    bool failed;
    for (size_t row = 0; row < b->rows; row++) {
        MR_TRY(mr__fold_row(f, b, row, made, &failed, st));
        mr__fold_go_on(f, made);
    }
    return MR_OK;
}

mr_code mr_reduce_spec(mr_dataset *ds, const mr_value *init, mr_fn *fn, mr_spec **spec,
                       mr_status *st)
{
    MR_TRY(mr_dataset_check(ds, st));
    return mr__fold_type("reduce", fn, init, mr_dataset_spec(ds), false, spec, NULL, NULL, st);
}

mr_code mr_reduce(mr_dataset *ds, const mr_value *init, mr_fn *fn, const mr_iterator_opts *opts,
                  mr_block *out, mr_status *st)
{
    mr__fold f = {0};
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY, made = MR_BLOCK_EMPTY;
    mr_iterator_opts run = opts ? *opts : (mr_iterator_opts){0};
    mr_code rc = mr_dataset_check(ds, st);
    if (rc == MR_OK)
        rc = mr__fold_open(&f, "reduce", fn, init, mr_dataset_spec(ds), false, st);
    if (rc == MR_OK)
        mr__program_bind(f.program, mr__function_seed(&run), run.cancel);
    run.identities = run.identities || (rc == MR_OK && mr__fn_draws(fn));
    if (rc == MR_OK)
        rc = mr_iterator_open(&it, ds, &run, st);
    while (rc == MR_OK && (rc = mr_iterator_next(it, WANT, &b, st)) == MR_OK)
        rc = fold_block(&f, &b, &made, st);
    if (rc == MR_END) {
        mr_block_move(out, &f.state);
        rc = MR_OK;
    } else
        mr_block_clear(out);
    mr_block_reset(&b);
    mr_block_reset(&made);
    mr_iterator_close(it);
    mr__fold_reset(&f);
    return rc;
}
