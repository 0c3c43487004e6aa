/* SPDX-License-Identifier: Apache-2.0 */
/* parse_sequence_example(x, context={..}, sequences={..}): parses serialized
 * tf.train.SequenceExample records. The context is read like an Example; a sequence is a list of
 * features, its steps.
 *
 *   message          field  meaning
 *   SequenceExample  1      Features: the context, so that parse_example reads it
 *                    2      FeatureLists
 *   FeatureLists     1      repeated entry { 1: key, 2: FeatureList }
 *   FeatureList      1      repeated Feature
 *
 *   feature of a sequence   column, T steps             of a vector of records
 *   int64, float32, bytes   [T]                         rows of different T
 *   dtype[3, 4]             [T, 3, 4]                   the same
 *   dtype[]                 T vectors of any length     not possible */
#include <inttypes.h>
#include <string.h>

#include "pipeline/formats/tfrecord/example_wire.h"
#include "pipeline/functions/library/features.h"

extern const mr_function mr_function_parse_example;

struct params {
    mr_exprs context, sequences;
};

struct plan {
    void *context; /* parse_example's; NULL: not requested */
    size_t n_context;
    mr__features *sequences; /* NULL: not requested */
    bool vector;
};

static void free_plan(void *plan)
{
    struct plan *p = plan;
    if (p->context)
        mr_function_parse_example.free_plan(p->context);
    if (p->sequences)
        mr__features_free(p->sequences);
    mr_free(p);
}

/* ---- typing ---- */

static mr_code type_context(mr_call *c, struct plan *p, mr_spec **spec, mr_status *st)
{
    const mr_exprs *given = &((const struct params *)c->params)->context;
    if (given->n == 0)
        return MR_OK;
    const char *no_name = NULL;
    const mr_exprs one = {given->v, &no_name, 1};
    mr_call sub = *c;
    sub.params = &one;
    sub.plan = NULL;
    sub.spec = NULL;
    mr_code rc = mr_function_parse_example.type(&sub, st);
    p->context = sub.plan;
    *spec = sub.spec;
    p->n_context = rc == MR_OK ? mr_spec_n_leaves(sub.spec) : 0;
    return rc;
}

static mr_code sequence_leaf(const mr_call *c, const mr__feature *f, mr_leaf *leaf, mr_status *st)
{
    const mr_leaf *x = c->in[0];
    if (f->dtype != MR_INT64 && f->dtype != MR_FLOAT32 && f->dtype != MR_STRING)
        return mr_call_fail(c, st, -1,
                            "parse_sequence_example: a record holds int64, float32 and bytes; read "
                            "%.80s as one of them and cast it",
                            f->name);
    if (f->preset)
        return mr_call_fail(c, st, -1, "parse_sequence_example: sequence %.80s takes no default",
                            f->name);
    if (f->ragged && x->rank == 1)
        return mr_call_fail(c, st, -1,
                            "parse_sequence_example: sequence %.80s has steps of any length: read "
                            "one record at a time",
                            f->name);
    *leaf = (mr_leaf){.dtype = f->dtype, .ragged = f->ragged || x->rank == 1};
    if (x->rank == 1)
        leaf->shape[leaf->rank++] = x->shape[0];
    leaf->shape[leaf->rank++] = -1;
    if (f->ragged)
        leaf->shape[leaf->rank++] = -1;
    if (leaf->rank + f->rank > MR_MAX_RANK)
        return mr_call_fail(c, st, -1, "parse_sequence_example: %.80s has more than %d axes",
                            f->name, MR_MAX_RANK);
    for (int d = 0; d < f->rank; d++)
        leaf->shape[leaf->rank++] = f->shape[d];
    return MR_OK;
}

static mr_code type_sequences(mr_call *c, struct plan *p, mr_spec **spec, mr_status *st)
{
    const mr_exprs *given = &((const struct params *)c->params)->sequences;
    if (given->n == 0)
        return MR_OK;
    const char *no_name = NULL;
    const mr_exprs one = {given->v, &no_name, 1};
    mr_call sub = *c;
    sub.plan = NULL;
    sub.spec = NULL;
    mr_code rc = mr__features_type(&sub, &one, false, st);
    p->sequences = sub.plan;
    mr_spec *flat = sub.spec;
    mr_leaf *leaves = rc == MR_OK ? mr_calloc(p->sequences->n, sizeof *leaves) : NULL;
    if (rc == MR_OK && !leaves)
        rc = mr_fail_memory(st, sizeof *leaves, "features");
    for (size_t i = 0; rc == MR_OK && i < p->sequences->n; i++)
        rc = sequence_leaf(c, &p->sequences->v[i], &leaves[i], st);
    if (rc == MR_OK && !(*spec = mr_spec_with_leaves(flat, leaves)))
        rc = mr_fail_memory(st, sizeof *leaves, "a spec");
    mr_spec_unref(flat);
    mr_free(leaves);
    return rc;
}

static mr_code type(mr_call *c, mr_status *st)
{
    mr_spec *parts[2] = {NULL, NULL};
    struct plan *p = c->plan = mr_calloc(1, sizeof *p);
    if (!p)
        return mr_fail_memory(st, sizeof *p, "a function's plan");
    p->vector = c->in[0]->rank == 1;
    mr_code rc = type_context(c, p, &parts[0], st);
    if (rc == MR_OK)
        rc = type_sequences(c, p, &parts[1], st);
    if (rc == MR_OK && !parts[0] && !parts[1])
        rc = mr_call_fail(c, st, -1,
                          "parse_sequence_example: no feature is requested; give context={..}, "
                          "sequences={..} or both");
    if (rc != MR_OK || !parts[0] || !parts[1]) {
        c->spec = rc == MR_OK ? (parts[0] ? parts[0] : parts[1]) : NULL;
        for (int i = 0; i < 2 && rc != MR_OK; i++)
            mr_spec_unref(parts[i]);
        return rc;
    }
    c->spec = mr_spec_tuple(parts, 2);
    return c->spec ? MR_OK : mr_fail_memory(st, sizeof *p, "a spec");
}

/* ---- running ---- */

/* A sequence of all records, under construction. */
struct grown {
    char *v;
    size_t n, capacity, begin; /* values; those before the current record */
    int64_t *steps;            /* of each record */
    int64_t *lengths;          /* ragged: of each step */
    size_t n_lengths, lengths_capacity, lengths_begin;
};

static mr_code wrong(const mr__feature *f, size_t step, const char *why, mr_status *st)
{
    return mr_fail(st, MR_INVALID_ARGUMENT, "parse_sequence_example: sequence %.80s, step %zu: %s",
                   f->name, step, why);
}

static mr_code add_step(const mr__feature *f, struct grown *g, size_t step, const uint8_t *value,
                        size_t size, mr_status *st)
{
    mr__list list;
    size_t n = 0, each = mr_dtype_size(f->dtype);
    if (!mr__find_list(value, size, &list) || (list.kind && !mr__count_values(&list, &n)))
        return wrong(f, step, "the feature is malformed", st);
    if (list.kind && mr__list_dtype(list.kind) != f->dtype)
        return wrong(f, step, "it has values of another type", st);
    if (!f->ragged && n != f->n)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "parse_sequence_example: sequence %.80s, step %zu: it has %zu values, not "
                       "%zu",
                       f->name, step, n, f->n);
    if (f->ragged) {
        MR_TRY(MR_GROW(g->lengths, g->lengths_capacity, g->n_lengths + 1, SIZE_MAX / 64,
                       "a sequence", st));
        g->lengths[g->n_lengths++] = (int64_t)n;
    }
    MR_TRY(mr_grow((void **)&g->v, &g->capacity, g->n + n, each, SIZE_MAX / 64, "a sequence", st));
    if (n)
        mr__decode_values(&list, g->v + g->n * each, &n);
    g->n += n;
    return MR_OK;
}

static mr_code add_sequence(const mr__feature *f, struct grown *g, const mr__entry *entry,
                            int64_t *steps, mr_status *st)
{
    const uint8_t *p = entry->value, *e = p ? p + entry->n_value : NULL;
    *steps = 0;
    if (!p && !entry->key && !f->ragged)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "parse_sequence_example: sequence %.80s is required but could not be found",
                       f->name);
    while (p && p < e) {
        uint64_t tag;
        size_t n;
        if (!(p = mr__varint(p, e, &tag)) ||
            !(p = tag == 0x0a ? mr__length(p, e, &n) : mr__skip_field(p, e, tag)))
            return wrong(f, (size_t)*steps, "the list of steps is malformed", st);
        if (tag != 0x0a)
            continue;
        MR_TRY(add_step(f, g, (size_t)*steps, p, n, st));
        ++*steps;
        p += n;
    }
    return MR_OK;
}

/* Finds the entries of the sequences of one record; the last entry of a key counts. false: not a
 * SequenceExample. */
static bool find_sequences(const mr__features *s, const mr_bytes *record, mr__entry *entries)
{
    const uint8_t *p = (const uint8_t *)record->data, *e = p ? p + record->size : p;
    memset(entries, 0, s->n * sizeof *entries);
    while (p < e) {
        uint64_t tag;
        size_t n;
        if (!(p = mr__varint(p, e, &tag)))
            return false;
        if (tag != 0x12) {
            if (!(p = mr__skip_field(p, e, tag)))
                return false;
            continue;
        }
        if (!(p = mr__length(p, e, &n)))
            return false;
        mr__walker in = {.p = p, .end = p + n, .outer = e, .outer_end = e};
        mr__entry entry;
        for (int got; (got = mr__next_entry(&in, &entry)) != 0;) {
            if (got < 0)
                return false;
            for (size_t i = 0; i < s->n && got == 1; i++)
                if (strlen(s->v[i].name) == entry.n_key &&
                    memcmp(s->v[i].name, entry.key ? entry.key : p, entry.n_key) == 0)
                    entries[i] = entry;
        }
        p += n;
    }
    return true;
}

static mr_code add_record(const mr__features *s, const mr_bytes *record, size_t at,
                          struct grown *all, mr__entry *entries, mr_status *st)
{
    if (!find_sequences(s, record, entries))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "parse_sequence_example: %zu bytes that are not a tf.train.SequenceExample",
                       record->size);
    for (size_t i = 0; i < s->n; i++)
        MR_TRY(add_sequence(&s->v[i], &all[i], &entries[i], &all[i].steps[at], st));
    return MR_OK;
}

/* Finishes the current record, or drops it. */
static void end_record(const mr__features *s, struct grown *all, size_t at, bool good)
{
    for (size_t i = 0; i < s->n; i++) {
        struct grown *g = &all[i];
        if (!good) {
            g->n = g->begin;
            g->n_lengths = g->lengths_begin;
            g->steps[at] = 0;
        }
        g->begin = g->n;
        g->lengths_begin = g->n_lengths;
    }
}

/* The column of a sequence, k records for each of `rows` rows. */
static mr_code make_column(const mr__feature *f, const struct grown *g, size_t rows, size_t k,
                           bool vector, mr_array *out, mr_status *st)
{
    bool splits = vector || f->ragged;
    size_t size = mr_dtype_size(f->dtype), n_splits = rows * (k + 1) + g->n_lengths;
    mr_buffer *data = NULL, *memory = NULL;
    MR_TRY(mr_array_alloc_ragged(out, f->dtype, (splits ? 2 : 1) + f->rank, rows, st));
    mr_code rc = mr_buffer_alloc(&data, g->n * size, st);
    if (rc == MR_OK)
        rc = mr_buffer_alloc(&memory, n_splits * sizeof(int64_t), st);
    if (rc == MR_OK)
        rc = mr_buffer_hold(out->owner, data, st);
    if (rc == MR_OK)
        rc = mr_buffer_hold(out->owner, memory, st);
    if (rc == MR_OK && g->n)
        memcpy(mr_buffer_data(data), g->v, g->n * size);
    char *at = data ? mr_buffer_data(data) : NULL;
    int64_t *split = memory ? mr_buffer_data(memory) : NULL;
    const int64_t *steps = g->steps, *lengths = g->lengths;
    for (size_t row = 0; row < rows && rc == MR_OK; row++) {
        int64_t *shape = mr_array_shape_slot(out, row), values = 0;
        ((mr_row *)out->data)[row] =
            (mr_row){.data = at, .shape = shape, .splits = splits ? split : NULL};
        shape[0] = vector ? (int64_t)k : *steps;
        if (splits)
            shape[1] = -1;
        for (int d = 0; d < f->rank; d++)
            shape[1 + splits + d] = f->shape[d];
        if (splits)
            *split++ = 0;
        for (int64_t i = 0; splits && i < shape[0]; i++) {
            values += vector ? *steps++ : *lengths++;
            *split++ = values;
        }
        if (!vector && !f->ragged)
            values = *steps;
        steps += !vector;
        at += (size_t)values * (f->ragged ? 1 : f->n) * size;
    }
    mr_buffer_unref(data);
    mr_buffer_unref(memory);
    return rc;
}

static mr_code run_sequences(const mr_rows *r, const struct plan *p, mr_array *out, mr_status *st)
{
    const mr__features *s = p->sequences;
    const mr_array *x = &r->in[0];
    size_t k = mr_array_row_values(x), n = r->rows * k;
    struct grown *all = mr_calloc(s->n, sizeof *all);
    mr__entry *entries = mr_calloc(s->n, sizeof *entries);
    mr_code rc = all && entries ? MR_OK : mr_fail_memory(st, s->n * sizeof *all, "sequences");
    for (size_t i = 0; i < s->n && rc == MR_OK; i++)
        if (!(all[i].steps = mr_calloc(n + 1, sizeof(int64_t))))
            rc = mr_fail_memory(st, n * sizeof(int64_t), "sequences");
    for (size_t i = 0; i < n && rc == MR_OK; i++) {
        mr_status why;
        mr_code got = add_record(s, (const mr_bytes *)x->data + i, i, all, entries, &why);
        if (got == MR_RESOURCE_EXHAUSTED) {
            rc = got;
            if (st)
                *st = why;
        } else if (got != MR_OK)
            mr_row_fail_at(r, i / k, 0, i % k, got, "%s", why.message);
        end_record(s, all, i, got == MR_OK);
    }
    for (size_t i = 0; i < s->n && rc == MR_OK; i++) {
        rc = make_column(&s->v[i], &all[i], r->rows, k, p->vector, &out[i], st);
        if (rc == MR_OK && out[i].dtype == MR_STRING && x->owner)
            rc = mr_buffer_hold_all(out[i].owner, x->owner, st);
    }
    for (size_t i = 0; all && i < s->n; i++) {
        mr_free(all[i].v);
        mr_free(all[i].steps);
        mr_free(all[i].lengths);
        if (rc != MR_OK)
            mr_array_reset(&out[i]);
    }
    mr_free(all);
    mr_free(entries);
    return rc;
}

static mr_code run(const mr_rows *r, mr_array *out, mr_status *st)
{
    const struct plan *p = r->plan;
    if (p->context) {
        mr_rows sub = *r;
        sub.plan = p->context;
        MR_TRY(mr_function_parse_example.run(&sub, out, st));
    }
    mr_code rc = p->sequences ? run_sequences(r, p, out + p->n_context, st) : MR_OK;
    for (size_t i = 0; i < p->n_context && rc != MR_OK; i++)
        mr_array_reset(&out[i]);
    return rc;
}

static const mr_param table[] = {
    MR_INPUT(mr_input_strings, "x", "A serialized tf.train.SequenceExample, or a vector of them."),
    {.name = "context",
     .doc = "{\"name\": feature, ...}: the features of the context, as for parse_example.",
     .type = MR_PT_OWN,
     .kind = &mr_option_exprs,
     .flags = MR_P_OPTIONAL,
     .at = offsetof(struct params, context)},
    {.name = "sequences",
     .doc = "{\"name\": feature, ...}: the type of each step of a sequence: int64, float32 or "
            "bytes, with a shape after it ([3, 4]; [] for any length).",
     .type = MR_PT_OWN,
     .kind = &mr_option_exprs,
     .flags = MR_P_OPTIONAL,
     .at = offsetof(struct params, sequences)},
    {0}};
const mr_function mr_function_parse_sequence_example = {
    .abi = MR_ABI_VERSION,
    .name = "parse_sequence_example",
    .doc = "The context and the sequences of serialized tf.train.SequenceExample records: a tuple "
           "of two records, or only the requested one.",
    .example = "tfrecord(\"train-*.tfrecord\").map(x => parse_sequence_example(x, "
               "context={\"label\": int64}, sequences={\"words\": bytes[]}))",
    .params = table,
    .params_size = sizeof(struct params),
    .type = type,
    .free_plan = free_plan,
    .run = run,
};
