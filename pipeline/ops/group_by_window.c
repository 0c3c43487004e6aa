/* SPDX-License-Identifier: Apache-2.0 */
/* Functions compute the keys, the sizes of windows, and the dataset made of a window. */
#include "pipeline/ops/apply.h"

#include "pipeline/ops/rows.h"
#include "pipeline/params/infer.h"
#include "pipeline/streams/groups.h"
#include "pipeline/params/hints.h"

struct params {
    mr_fn *key_fn, *reduce_fn;
    mr_value window_size; /* an integer or a function */
    mr_fn *window_size_fn;
};

struct state {
    mr__groups groups;               /* first */
    const mr_program *size, *reduce; /* size NULL: it is fixed */
    int64_t fixed;
};

static mr_fn *size_fn(const struct params *p)
{
    return p->window_size.kind == MR_V_FN ? p->window_size.fn : p->window_size_fn;
}

/* ---- calling the functions ---- */

/* made = the function's result for one row, or its error. */
static mr_code call(const mr_program *program, const mr_block *in, mr_block *made, mr_status *st)
{
    mr_row_errors errors = MR_ROW_ERRORS_EMPTY;
    mr_code rc = mr_program_run(program, in, made, &errors, st);
    if (rc == MR_OK && errors.n) {
        rc = errors.v[0].status.code;
        if (st)
            *st = errors.v[0].status;
    }
    mr_row_errors_reset(&errors);
    return rc;
}

static mr_code put_key(mr_block *in, size_t n_columns, int64_t key, mr_status *st)
{
    MR_TRY(mr_block_prepare(in, n_columns, st));
    in->rows = 1;
    MR_TRY(mr_array_alloc(&in->columns[0], MR_INT64, 0, NULL, 1, st));
    *(int64_t *)in->columns[0].data = key;
    return MR_OK;
}

static mr_code size_of(mr_iter *it, int64_t key, int64_t *size, mr_status *st)
{
    const struct state *s = it->state;
    *size = s->fixed;
    if (!s->size)
        return MR_OK;
    mr_block in = MR_BLOCK_EMPTY, made = MR_BLOCK_EMPTY;
    mr_code rc = put_key(&in, 1, key, st);
    if (rc == MR_OK)
        rc = call(s->size, &in, &made, st);
    if (rc == MR_OK && (made.columns[0].storage != MR_DENSE || made.columns[0].rank != 0))
        rc = mr_fail(st, MR_INVALID_ARGUMENT, "the size of a window must be a scalar");
    if (rc == MR_OK)
        *size = *(const int64_t *)made.columns[0].data;
    mr_block_reset(&in);
    mr_block_reset(&made);
    return rc;
}

static mr_code make(mr_iter *it, int64_t key, const mr_block *rows, mr_dataset **out, mr_status *st)
{
    const struct state *s = it->state;
    mr_block in = MR_BLOCK_EMPTY, made = MR_BLOCK_EMPTY;
    mr_code rc = put_key(&in, 2, key, st);
    if (rc == MR_OK)
        rc = mr_array_alloc_datasets(&in.columns[1], 1, st);
    if (rc == MR_OK) {
        mr_dataset *group = mr__rows_dataset(rows, mr_iter_input_spec(it, 0));
        *(mr_dataset **)in.columns[1].data = group;
        rc = mr_dataset_check(group, st);
    }
    if (rc == MR_OK)
        rc = call(s->reduce, &in, &made, st);
    if (rc == MR_OK)
        *out = mr_dataset_ref(*(mr_dataset **)made.columns[0].data);
    mr_block_reset(&in);
    mr_block_reset(&made);
    return rc;
}

/* ---- types ---- */

static mr_code reduce_program(const struct params *p, const mr_spec *in, const mr_program **out,
                              mr_status *st)
{
    mr_spec *args[] = {mr_spec_scalar(MR_INT64), mr_spec_dataset(mr_spec_ref(in))}, *both = NULL;
    MR_TRY(mr__inferred(mr_spec_tuple(args, 2), &both, st));
    mr_code rc = mr_program_get(p->reduce_fn, both, out, st);
    mr_spec_unref(both);
    return rc;
}

static mr_code check_size(const mr_dataset *self, const struct params *p, mr_status *st)
{
    const mr_value *v = &p->window_size;
    if (size_fn(p)) {
        mr_spec *key = NULL;
        MR_TRY(mr__inferred(mr_spec_scalar(MR_INT64), &key, st));
        mr_code rc = mr__groups_check_number(self, "window_size_fn", size_fn(p), key, st);
        mr_spec_unref(key);
        MR_TRY(rc);
    }
    bool is_number = v->kind == MR_V_INT;
    if (v->kind == MR_V_UNKNOWN && mr_spec_kind_of(v->spec) == MR_SPEC_LEAF) {
        const mr_leaf *leaf = mr_spec_leaf(v->spec, 0);
        is_number = leaf->dtype == MR_INT64 && leaf->rank <= 0;
    }
    bool given = v->kind != MR_V_UNSET && v->kind != MR_V_NONE;
    if (given && v->kind != MR_V_FN && !is_number)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "group_by_window: window_size must be an integer, or a function of the key");
    if (given == (p->window_size_fn != NULL))
        return mr_fail(st, MR_INVALID_ARGUMENT, "group_by_window: %s",
                       given ? "give window_size or window_size_fn, not both"
                             : "window_size is missing");
    return MR_OK;
}

static mr_code infer(const mr_dataset *self, const void *params, mr_spec **out, mr_status *st)
{
    const struct params *p = params;
    const mr_spec *in = mr_dataset_spec(mr_dataset_input(self, 0));
    const mr_program *program;
    MR_TRY(check_size(self, p, st));
    MR_TRY(mr__groups_check_number(self, "key_fn", p->key_fn, in, st));
    MR_TRY(reduce_program(p, in, &program, st));
    const mr_spec *made = mr_program_output(program);
    mr_code rc = MR_OK;
    if (mr_spec_kind_of(made) == MR_SPEC_LEAF && mr_spec_leaf(made, 0)->dtype == MR_DATASET)
        *out = mr_spec_ref(mr_spec_leaf(made, 0)->element);
    else {
        char text[160], hint[MR__HINT_ROOM];
        mr_spec_format(made, text, sizeof text);
        mr__hint_of_datasets(made, NULL, hint);
        rc = mr_fail(st, MR_INVALID_ARGUMENT,
                     "group_by_window: reduce_fn must return a dataset, not %s%s", text, hint);
    }
    mr_program_unref(program);
    return rc;
}

/* ---- slots ---- */

static const mr__grouper grouper = {.size = size_of, .make = make};

static mr_code open(mr_iter *it, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    s->fixed = p->window_size.kind == MR_V_INT ? p->window_size.i : 0;
    if (size_fn(p)) {
        mr_spec *scalar = NULL;
        MR_TRY(mr__inferred(mr_spec_scalar(MR_INT64), &scalar, st));
        mr_code rc = mr_iter_program(it, size_fn(p), scalar, &s->size, st);
        mr_spec_unref(scalar);
        MR_TRY(rc);
    }
    MR_TRY(reduce_program(p, mr_iter_input_spec(it, 0), &s->reduce, st));
    mr_iter_bind_program(it, s->reduce);
    return mr__groups_open(&s->groups, it, &grouper, p->key_fn, s->size ? 1 : s->fixed, st);
}

static void close(mr_iter *it)
{
    struct state *s = it->state;
    mr__groups_close(it);
    mr_program_unref(s->size);
    mr_program_unref(s->reduce);
}

static const mr_param table[] = {
    MR_ARG(struct params, key_fn, .doc = "The key of an element, an integer."),
    MR_ARG(struct params, reduce_fn,
           .doc = "Makes a dataset from a key and the dataset of its elements."),
    {.name = "window_size",
     .doc = "Elements that make a group full, at least 1; an integer, or a function of the key.",
     .type = MR_PT_VALUE,
     .flags = MR_P_OPTIONAL,
     .at = offsetof(struct params, window_size)},
    {.name = "window_size_fn",
     .doc = "The size as a function of the key, under tf.data's name.",
     .type = MR_PT_FN,
     .at = offsetof(struct params, window_size_fn)},
    {0}};

const mr_op mr_op_group_by_window = {
    .abi = MR_ABI_VERSION,
    .name = "group_by_window",
    .doc = "Groups elements with the same key into datasets, and concatenates what a function "
           "makes of each.",
    .example = "range(10).group_by_window(x => x % 2, (key, w) => w.batch(3), 3)",
    .order_doc = "windows as they fill; at the end the remaining ones, by key",
    .memory_doc = "up to a window for each key",
    .params = table,
    .params_size = sizeof(struct params),
    .iter_size = sizeof(struct state),
    .infer = infer,
    .open = open,
    .close = close,
    MR__GROUPS_SLOTS,
};

mr_dataset *mr_group_by_window(mr_dataset *input, mr_fn *key_fn, mr_fn *reduce_fn,
                               int64_t window_size, mr_fn *window_size_fn)
{
    struct params p = {.key_fn = key_fn, .reduce_fn = reduce_fn, .window_size_fn = window_size_fn};
    if (!window_size_fn)
        p.window_size = (mr_value){.kind = MR_V_INT, .i = window_size};
    mr_dataset *ds = mr_dataset_new(&mr_op_group_by_window, &p, &input, 1);
    mr_fn_unref(key_fn);
    mr_fn_unref(reduce_fn);
    mr_fn_unref(window_size_fn);
    return ds;
}
