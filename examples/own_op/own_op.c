/* SPDX-License-Identifier: Apache-2.0 */
/* A shared object for `millrace --load` with a custom op, function and callback.
 *
 *     range(10).every(3)                            0 3 6 9
 *     range(3).map(x => celsius(cast(x, "float32")))
 *     range(3).map(negated)                         0 -1 -2 */
#include <millrace/millrace.h>

/* ---- every(n): the first of every n elements ---- */

struct params {
    int64_t n;
};

/* The state: the number of elements to skip before the next one is emitted. */
struct state {
    uint64_t skip;
};

static mr_code next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    (void)want; /* one at a time: skipped elements are never held */
    while (s->skip > 0) {
        MR_TRY(mr_iter_pull(it, 0, (size_t)s->skip, out, st));
        s->skip -= out->rows;
    }
    MR_TRY(mr_iter_pull(it, 0, 1, out, st));
    s->skip = (uint64_t)p->n - 1;
    return MR_OK;
}

static mr_code save(mr_iter *it, mr_state_w *w, mr_status *st)
{
    const struct state *s = it->state;
    MR_TRY(mr_state_put_u64(w, s->skip, st));
    return mr_iter_save_input(it, 0, w, st);
}

static mr_code restore(mr_iter *it, mr_state_r *r, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    MR_TRY(mr_state_get_u64(r, &s->skip, st));
    if (s->skip >= (uint64_t)p->n)
        return mr_state_damaged(st, "more elements to skip than ever are");
    MR_TRY(mr_iter_restore_input(it, 0, r, st));
    return it->inputs[0] ? MR_OK : mr_state_damaged(st, "an input is not open");
}

static int64_t cardinality(const mr_dataset *self, const void *params, const int64_t *in)
{
    const struct params *p = params;
    (void)self;
    return in[0] < 0 ? in[0] : in[0] / p->n + (in[0] % p->n != 0);
}

static const mr_param every_table[] = {MR_ARG(struct params, n, .min.i = 1, .max.i = INT64_MAX,
                                              .doc = "One of every n elements is kept."),
                                       {0}};

static const mr_op every = {
    .abi = MR_ABI_VERSION,
    .name = "every",
    .doc = "The first of every n elements.",
    .example = "range(10).every(3)",
    .params = every_table,
    .params_size = sizeof(struct params),
    .iter_size = sizeof(struct state),
    .min_inputs = 1,
    .max_inputs = 1,
    .role = MR_ROLE_BARRIER, /* its output depends on the number of preceding elements */
    .cardinality = cardinality,
    .next = next,
    .save = save,
    .restore = restore,
};

/* ---- celsius(x): from Fahrenheit ---- */

static mr_code celsius_type(mr_call *c, mr_status *st)
{
    if (c->in[0]->dtype != MR_FLOAT32)
        return mr_call_fail(c, st, 0, "celsius expects float32, not %s",
                            mr_dtype_name(c->in[0]->dtype));
    c->out = *c->in[0];
    return MR_OK;
}

static mr_code celsius_run(const mr_rows *r, mr_array *out, mr_status *st)
{
    const mr_array *in = &r->in[0];
    size_t n = r->rows * mr_array_row_values(in);
    MR_TRY(mr_array_alloc(out, MR_FLOAT32, in->rank, in->shape, r->rows, st));
    const float *x = in->data;
    float *y = out->data;
    for (size_t i = 0; i < n; i++)
        y[i] = (x[i] - 32) / 1.8f;
    return MR_OK;
}

static const mr_param celsius_table[] = {
    MR_INPUT(mr_input_numbers, "x", "Degrees Fahrenheit, float32."), {0}};

static const mr_function celsius = {
    .abi = MR_ABI_VERSION,
    .name = "celsius",
    .doc = "Degrees Fahrenheit as degrees Celsius.",
    .example = "from_tensors(212.0).map(x => celsius(x))",
    .params = celsius_table,
    .type = celsius_type,
    .run = celsius_run,
};

/* ---- negated: a callback over blocks of int64 ---- */

static mr_code negate(void *ctx, const mr_block *in, mr_block *out, mr_status *st)
{
    (void)ctx;
    MR_TRY(mr_block_prepare(out, 1, st));
    MR_TRY(mr_array_alloc(&out->columns[0], MR_INT64, 0, NULL, in->rows, st));
    const int64_t *x = in->columns[0].data;
    int64_t *y = out->columns[0].data;
    for (size_t i = 0; i < in->rows; i++)
        y[i] = -x[i];
    out->rows = in->rows;
    return MR_OK;
}

mr_code mr_plugin_register(mr_status *st);

mr_code mr_plugin_register(mr_status *st)
{
    MR_TRY(mr_op_register(&every, st));
    MR_TRY(mr_function_register(&celsius, st));
    mr_fn *fn = mr_fn_block(negate, NULL, NULL);
    mr_code rc = mr_fn_register("negated", fn, st);
    mr_fn_unref(fn);
    return rc;
}
