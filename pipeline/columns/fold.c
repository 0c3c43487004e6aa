/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/columns/fold.h"

#include <string.h>

#include "pipeline/columns/constant.h"
#include "pipeline/params/infer.h"

/* ---- types ---- */

static mr_code fail_type(const char *who, const mr_spec *state, const mr_spec *next, mr_status *st)
{
    char x[160], y[160];
    mr_spec_format(state, x, sizeof x);
    mr_spec_format(next, y, sizeof y);
    return mr_fail(st, MR_INVALID_ARGUMENT,
                   "%s: fn must return a state of the type of the first one, %s, not %s", who, x,
                   y);
}

/* The next state's part of the function's result. */
static mr_code next_spec(const char *who, const mr_spec *made, bool emits, const mr_spec **next,
                         mr_status *st)
{
    *next = made;
    if (!emits)
        return MR_OK;
    if (mr_spec_kind_of(made) != MR_SPEC_TUPLE || mr_spec_n_children(made) != 2) {
        char text[160];
        mr_spec_format(made, text, sizeof text);
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "%s: fn must return a pair, the next state and what is emitted, not %s", who,
                       text);
    }
    *next = mr_spec_child(made, 0);
    return MR_OK;
}

/* One step of typing: *wider = the spec that covers *state and the state that the function
 * returns for it. */
static mr_code type_once(const char *who, mr_fn *fn, const mr_spec *state, const mr_spec *element,
                         bool emits, const mr_program **program, mr_spec **wider, mr_status *st)
{
    const mr_spec *next;
    mr_spec *in = NULL, *both[] = {mr_spec_ref(state), mr_spec_ref(element)};
    *program = NULL;
    MR_TRY(mr__inferred(mr_spec_tuple(both, 2), &in, st));
    mr_code rc = mr_program_get(fn, in, program, st);
    mr_spec_unref(in);
    if (rc == MR_OK)
        rc = next_spec(who, mr_program_output(*program), emits, &next, st);
    if (rc == MR_OK && !mr_spec_same_types(state, next))
        rc = fail_type(who, state, next, st);
    if (rc == MR_OK)
        rc = mr__inferred(mr_spec_merge(state, next), wider, st);
    if (rc != MR_OK)
        mr_program_unref(*program);
    return rc;
}

mr_code mr__fold_type(const char *who, mr_fn *fn, const mr_value *init, const mr_spec *element,
                      bool emits, mr_spec **state, mr_spec **out, const mr_program **program,
                      mr_status *st)
{
    mr_spec *now = NULL;
    int64_t count = -1;
    const mr_program *made = NULL;
    mr_code rc = mr__constant_spec(init, MR_WHOLE, &now, &count, st);
    for (bool same = false;
         rc == MR_OK && !same;) { /* each round drops a known dimension or rank */
        mr_spec *wider = NULL;
        rc = type_once(who, fn, now, element, emits, &made, &wider, st);
        if (rc != MR_OK)
            break;
        same = mr_spec_equal(now, wider);
        if (!same)
            mr_program_unref(made);
        mr_spec_unref(now);
        now = wider;
    }
    if (rc == MR_OK && out)
        *out = mr_spec_ref(mr_spec_child(mr_program_output(made), 1));
    if (rc == MR_OK && program)
        *program = made;
    else if (rc == MR_OK)
        mr_program_unref(made);
    if (rc == MR_OK && state)
        *state = now;
    else
        mr_spec_unref(now);
    return rc;
}

/* ---- running ---- */

mr_code mr__fold_open(mr__fold *f, const char *who, mr_fn *fn, const mr_value *init,
                      const mr_spec *element, bool emits, mr_status *st)
{
    mr_spec *first = NULL;
    int64_t count = -1;
    MR_TRY(mr__fold_type(who, fn, init, element, emits, &f->spec, NULL, &f->program, st));
    f->n = mr_spec_n_leaves(f->spec);
    mr_code rc = mr__constant_spec(init, MR_WHOLE, &first, &count, st);
    if (rc == MR_OK)
        rc = mr__constant_block(init, MR_WHOLE, first, &f->state, st);
    mr_spec_unref(first);
    return rc;
}

mr_code mr__fold_row(mr__fold *f, const mr_block *b, size_t row, mr_block *made, bool *failed,
                     mr_status *st)
{
    MR_TRY(mr_block_prepare(&f->in, f->n + b->n_columns, st));
    for (size_t c = 0; c < f->n; c++)
        mr_array_slice(&f->in.columns[c], &f->state.columns[c], 0, 1);
    for (size_t c = 0; c < b->n_columns; c++)
        mr_array_slice(&f->in.columns[f->n + c], &b->columns[c], row, 1);
    f->in.rows = 1;
    mr_identities_take(&f->in.ids, &b->ids, row, 1);
    mr_code rc = mr_program_run(f->program, &f->in, made, &f->errors, st);
    mr_block_clear(&f->in);
    *failed = rc == MR_OK && f->errors.n > 0;
    if (*failed) {
        rc = f->errors.v[0].status.code;
        if (st)
            *st = f->errors.v[0].status;
    }
    f->errors.n = 0;
    return rc;
}

void mr__fold_go_on(mr__fold *f, mr_block *made)
{
    for (size_t c = 0; c < f->n; c++) {
        mr_array_reset(&f->state.columns[c]);
        mr_array_move(&f->state.columns[c], &made->columns[c]);
    }
}

void mr__fold_reset(mr__fold *f)
{
    mr_program_unref(f->program);
    mr_spec_unref(f->spec);
    mr_block_reset(&f->state);
    mr_block_reset(&f->in);
    mr_row_errors_reset(&f->errors);
    *f = (mr__fold){0};
}
