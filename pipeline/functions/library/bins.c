/* SPDX-License-Identifier: Apache-2.0 */
/* discretization(x, bin_boundaries): the index of the range between boundaries that contains x. */
#include <string.h>

#include "pipeline/functions/compiler/graph_builder.h"
#include "pipeline/functions/compiler/deferred_file.h"
#include "pipeline/functions/library/learned_lists.h"
#include "pipeline/params/params.h"

/* As given in the text. */
struct boundaries {
    mr_floats list;
    char *file; /* or its directory; NULL: use the list */
};
struct params {
    struct boundaries bin_boundaries;
};

/* Those of the file, once it was read. */
struct plan {
    mr__deferred_file late;
    mr_floats list;
};

static mr_code parse(const mr_param *p, const mr_expr *e, void *field, mr_status *st)
{
    static const mr_param list = {.name = "bin_boundaries", .type = MR_PT_FLOATS};
    static const scope nothing;
    const builder b = {.s = &nothing};
    struct boundaries *to = field;
    mr_value v = {0};
    mr_status why;
    bool unknown;
    if (e->kind == MR_EX_STRING) {
        if (!e->text_size || memchr(e->text, 0, e->text_size))
            return mr_expr_fail_at(st, e, "%s: the name of the file is empty or has a NUL byte",
                                   p->name);
        to->file = mr_strdup(e->text);
        return to->file ? MR_OK : mr_fail_memory(st, e->text_size, "a file name");
    }
    MR_TRY(mr__build_value(&b, e, &v, st));
    mr_code rc = mr__param_set("discretization", &list, &to->list, &v, &unknown, &why);
    mr_value_reset(&v);
    if (rc == MR_OK)
        rc = mr_learned_boundaries_check(&to->list, &why);
    if (rc == MR_OK)
        return MR_OK;
    mr_free(to->list.v);
    to->list = (mr_floats){0};
    if (rc == MR_INVALID_ARGUMENT)
        return mr_expr_fail_at(st, e, "%s", why.message);
    if (st)
        *st = why;
    return rc;
}

static void clear(void *field)
{
    struct boundaries *b = field;
    mr_free(b->list.v);
    mr_free(b->file);
}

static const mr_param_kind boundaries = {
    .size = sizeof(struct boundaries), .parse = parse, .clear = clear};

static void free_plan(void *plan)
{
    struct plan *p = plan;
    mr__deferred_file_reset(&p->late);
    mr_free(p->list.v);
    mr_free(p);
}

static mr_code type(mr_call *c, mr_status *st)
{
    struct plan *p = c->plan = mr_calloc(1, sizeof *p);
    if (!p)
        return mr_fail_memory(st, sizeof *p, "boundaries");
    mr__deferred_file_init(&p->late);
    c->out = *c->in[0];
    c->out.dtype = MR_INT64;
    return MR_OK;
}

static mr_code open_file(const mr_rows *r, mr_status *st)
{
    struct plan *p = (struct plan *)(uintptr_t)r->plan;
    const struct params *o = r->params;
    mr_buffer *bytes = NULL;
    char *path = NULL;
    size_t size;
    mr_code rc = mr__deferred_file_read(r, &p->late, o->bin_boundaries.file, "boundaries.json",
                                        MR_LEARNED_LIST_MOST, &path, &bytes, &size, st);
    if (rc == MR_OK) {
        rc = mr_learned_boundaries(mr_buffer_data(bytes), size, &p->list, st);
        if (rc != MR_OK)
            mr_status_prefix(st, "discretization: %s", path);
    }
    mr_buffer_unref(bytes);
    mr_free(path);
    return rc;
}

/* The number of boundaries that are at most v; all of them if v is NaN. */
static int64_t bin_of(const mr_floats *b, double v)
{
    size_t low = 0, high = b->n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (v < b->v[middle])
            high = middle;
        else
            low = middle + 1;
    }
    return (int64_t)low;
}

static mr_code run(const mr_rows *r, mr_array *out, mr_status *st)
{
    struct plan *p = (struct plan *)(uintptr_t)r->plan;
    const struct boundaries *given = &((const struct params *)r->params)->bin_boundaries;
    const mr_floats *b = given->file ? &p->list : &given->list;
    const mr_array *x = &r->in[0];
    size_t n = x->rows * mr_array_row_values(x);
    mr_array wide = {0};
    if (given->file)
        MR_TRY(mr__deferred_file_get(r, &p->late, open_file, st));
    MR_TRY(mr__kernel_cast(x, MR_FLOAT64, &wide, st));
    mr_code rc = mr_array_alloc(out, MR_INT64, x->rank, x->shape, x->rows, st);
    const double *v = wide.data;
    int64_t *z = out->data;
    for (size_t i = 0; i < n && rc == MR_OK; i++)
        z[i] = bin_of(b, v[i]);
    mr_array_reset(&wide);
    return rc;
}

static const mr_param table[] = {
    MR_INPUT(mr_input_numbers, "x", "Numbers."),
    {.name = "bin_boundaries",
     .doc = "Ascending numbers, the boundaries.json that adapt wrote, or its directory.",
     .type = MR_PT_OWN,
     .kind = &boundaries,
     .flags = MR_P_POSITIONAL,
     .at = offsetof(struct params, bin_boundaries)},
    {0}};
const mr_function mr_function_discretization = {
    .abi = MR_ABI_VERSION,
    .name = "discretization",
    .doc = "The index of each value's bin, an int64: 0 below the first boundary, 1 from there to "
           "below the second, and so on.",
    .example = "range(3).map(x => discretization(x, bin_boundaries=[0.5, 2.0]))",
    .params = table,
    .params_size = sizeof(struct params),
    .props = MR_FUNCTION_READS,
    .type = type,
    .free_plan = free_plan,
    .run = run,
};
