/* SPDX-License-Identifier: Apache-2.0 */
#include "binding.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static mr_code nothing(void *ctx, void *pass, size_t want, mr_block *out, mr_status *st)
{
    (void)ctx, (void)pass, (void)want, (void)out, (void)st;
    return MR_END;
}

mr_dataset *mrpy_given(const mr_spec *element)
{
    return mr_from_generator(&(mr_generator){.next = nothing}, element);
}

mr_code mrpy_plugin_load(const char *path, mr_status *st)
{
    Dl_info library;
    /* Loaded as what the extension module needs, the library is visible to that module alone. */
    if (dladdr(mr_version(), &library))
        dlopen(library.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
    return mr_plugin_load(path, st);
}

/* ---- Python functions ---- */

void mrpy_fail(mr_status *st, mr_code code, const char *message)
{
    (void)mr_fail(st, code, "%s", message);
}

int mrpy_wait(int fd, mr_cancel *cancel)
{
    struct pollfd p[2] = {{.fd = fd, .events = POLLIN}, {.fd = -1, .events = POLLIN}};
    mr_status st;
    /* Without a descriptor to wait for, as where the process has no more, it looks now and then. */
    bool looks = cancel && mr_cancel_fd(cancel, &p[1].fd, &st) != MR_OK;
    if (looks)
        p[1].fd = -1;
    for (;;) {
        int n = poll(p, 2, looks ? 20 : -1);
        if (n > 0 || (n < 0 && errno != EINTR))
            return p[0].revents ? 0 : 1;
        if (mr_cancel_is_cancelled(cancel))
            return 1;
    }
}

/* ---- runs without a consumer ---- */

enum { WANT = 1024 };

static double now(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

mr_code mrpy_drain(mr_iterator *it, int64_t limit, double seconds, mrpy_run *run, mr_status *st)
{
    mr_block b = MR_BLOCK_EMPTY;
    mr_code rc = MR_OK;
    double began = now(CLOCK_MONOTONIC), cpu = now(CLOCK_PROCESS_CPUTIME_ID);
    *run = (mrpy_run){0};
    while (limit != 0 && (seconds <= 0 || run->seconds < seconds)) {
        size_t want = limit > 0 && limit < WANT ? (size_t)limit : WANT;
        rc = mr_iterator_next(it, want, &b, st);
        run->seconds = now(CLOCK_MONOTONIC) - began;
        if (rc != MR_OK)
            break;
        if (run->elements == 0)
            run->first_element_seconds = run->seconds;
        run->elements += (int64_t)b.rows;
        run->bytes += (int64_t)mr_block_payload_bytes(&b);
        if (limit > 0)
            limit -= (int64_t)b.rows;
    }
    run->cpu_seconds = now(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    mr_block_reset(&b);
    return rc;
}

/* ---- Arrow ---- */

/* A struct of Arrow: what its private_data points to. */
typedef struct fields {
    struct ArrowSchema *schemas;
    struct ArrowArray *arrays;
    void **pointers;
    const void *buffers[1];
    char *name;
    size_t n;
} fields;

static void fields_free(fields *f)
{
    for (size_t i = 0; i < f->n; i++) {
        if (f->schemas && f->schemas[i].release)
            f->schemas[i].release(&f->schemas[i]);
        if (f->arrays && f->arrays[i].release)
            f->arrays[i].release(&f->arrays[i]);
    }
    free(f->schemas);
    free(f->arrays);
    free(f->pointers);
    free(f->name);
    free(f);
}

static void release_schema(struct ArrowSchema *s)
{
    fields_free(s->private_data);
    s->release = NULL;
}

static void release_array(struct ArrowArray *a)
{
    fields_free(a->private_data);
    a->release = NULL;
}

static fields *fields_new(size_t n, bool schemas, const char *name)
{
    fields *f = calloc(1, sizeof *f);
    if (!f)
        return NULL;
    f->n = n;
    f->pointers = calloc(n + 1, sizeof *f->pointers);
    f->name = strdup(name);
    if (schemas)
        f->schemas = calloc(n + 1, sizeof *f->schemas);
    else
        f->arrays = calloc(n + 1, sizeof *f->arrays);
    if (!f->pointers || !f->name || !(schemas ? (void *)f->schemas : (void *)f->arrays)) {
        f->n = 0;
        fields_free(f);
        return NULL;
    }
    for (size_t i = 0; i < n; i++)
        f->pointers[i] = schemas ? (void *)&f->schemas[i] : (void *)&f->arrays[i];
    return f;
}

/* The sizes of the axes of a row are all known. */
static bool is_regular(const mr_leaf *leaf)
{
    for (int i = 0; i < leaf->rank; i++)
        if (leaf->shape[i] < 0)
            return false;
    return leaf->rank >= 0 && !leaf->ragged;
}

/* Exports column a, which is of this leaf, always as the same type of Arrow. */
static mr_code export_column(struct ArrowArray *array, struct ArrowSchema *schema,
                             const mr_array *a, const mr_leaf *leaf, const char *name,
                             mr_status *st)
{
    if (is_regular(leaf))
        return mr_export_arrow(array, schema, a, name, st);
    mr_array view = {0};
    MR_TRY(mr_array_to_ragged(&view, a, st));
    mr_code rc = mr_export_arrow(array, schema, &view, name, st);
    mr_array_reset(&view);
    return rc;
}

static mr_code leaf_schema(struct ArrowSchema *out, const mr_leaf *leaf, const char *name,
                           mr_status *st)
{
    mr_array empty = {0};
    struct ArrowArray array = {0};
    if (leaf->rank < 0)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "Arrow needs the number of axes of '%s', which is unknown", name);
    if (leaf->dtype == MR_DATASET)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "'%s' is a dataset, for which Arrow has no type; flat_map(lambda d: d) "
                       "makes elements of its elements",
                       name);
    if (is_regular(leaf))
        MR_TRY(mr_array_alloc(&empty, leaf->dtype, leaf->rank, leaf->shape, 0, st));
    else
        MR_TRY(mr_array_alloc_ragged(&empty, leaf->dtype, leaf->rank, 0, st));
    mr_code rc = mr_export_arrow(&array, out, &empty, name, st);
    mr_array_reset(&empty);
    if (array.release)
        array.release(&array);
    return rc;
}

/* The components of a spec; a single tensor is one. */
static size_t n_components(const mr_spec *s)
{
    return mr_spec_kind_of(s) == MR_SPEC_LEAF ? 1 : mr_spec_n_children(s);
}
static const mr_spec *component(const mr_spec *s, size_t i)
{
    return mr_spec_kind_of(s) == MR_SPEC_LEAF ? s : mr_spec_child(s, i);
}
static const char *component_name(const mr_spec *s, size_t i, char room[24])
{
    if (mr_spec_kind_of(s) == MR_SPEC_LEAF)
        return "value";
    const char *name = mr_spec_child_name(s, i);
    if (name)
        return name;
    snprintf(room, 24, "%zu", i);
    return room;
}

static mr_code struct_schema(struct ArrowSchema *out, const mr_spec *s, const char *name,
                             mr_status *st)
{
    size_t n = n_components(s);
    fields *f = fields_new(n, true, name);
    mr_code rc = f ? MR_OK : mr_fail_memory(st, 0, "the schema of a stream");
    for (size_t i = 0; i < n && rc == MR_OK; i++) {
        char room[24];
        const mr_spec *c = component(s, i);
        const char *title = component_name(s, i, room);
        rc = mr_spec_kind_of(c) == MR_SPEC_LEAF
                 ? leaf_schema(&f->schemas[i], mr_spec_leaf(c, 0), title, st)
                 : struct_schema(&f->schemas[i], c, title, st);
    }
    if (rc != MR_OK) {
        if (f)
            fields_free(f);
        return rc;
    }
    *out = (struct ArrowSchema){.format = "+s",
                                .name = f->name,
                                .n_children = (int64_t)n,
                                .children = (struct ArrowSchema **)f->pointers,
                                .release = release_schema,
                                .private_data = f};
    return MR_OK;
}

/* The rows of columns from *column on, which it advances past those of s. */
static mr_code struct_array(struct ArrowArray *out, const mr_spec *s, const mr_block *b,
                            size_t *column, mr_status *st)
{
    size_t n = n_components(s);
    fields *f = fields_new(n, false, "");
    mr_code rc = f ? MR_OK : mr_fail_memory(st, 0, "a batch of a stream");
    for (size_t i = 0; i < n && rc == MR_OK; i++) {
        const mr_spec *c = component(s, i);
        if (mr_spec_kind_of(c) != MR_SPEC_LEAF) {
            rc = struct_array(&f->arrays[i], c, b, column, st);
            continue;
        }
        struct ArrowSchema schema = {0};
        rc = export_column(&f->arrays[i], &schema, &b->columns[(*column)++], mr_spec_leaf(c, 0), "",
                           st);
        if (schema.release)
            schema.release(&schema);
    }
    if (rc != MR_OK) {
        if (f)
            fields_free(f);
        return rc;
    }
    *out = (struct ArrowArray){.length = (int64_t)b->rows,
                               .n_buffers = 1,
                               .n_children = (int64_t)n,
                               .buffers = f->buffers,
                               .children = (struct ArrowArray **)f->pointers,
                               .release = release_array,
                               .private_data = f};
    return MR_OK;
}

typedef struct stream {
    mr_dataset *ds;
    mr_iterator *it; /* opened for the first rows: a consumer may want the schema alone */
    mr_status st;
    char message[2048];
} stream;

static int report(stream *s)
{
    mr_status_format(&s->st, s->message, sizeof s->message);
    switch (s->st.code) {
    case MR_INVALID_ARGUMENT:
        return EINVAL;
    case MR_RESOURCE_EXHAUSTED:
        return ENOMEM;
    case MR_CANCELLED:
        return ECANCELED;
    default:
        return EIO;
    }
}

static int get_schema(struct ArrowArrayStream *self, struct ArrowSchema *out)
{
    stream *s = self->private_data;
    return struct_schema(out, mr_dataset_spec(s->ds), "", &s->st) == MR_OK ? 0 : report(s);
}

static int get_next(struct ArrowArrayStream *self, struct ArrowArray *out)
{
    stream *s = self->private_data;
    mr_block b = MR_BLOCK_EMPTY;
    size_t column = 0;
    mr_code rc = s->it ? MR_OK : mr_iterator_open(&s->it, s->ds, NULL, &s->st);
    *out = (struct ArrowArray){0};
    if (rc == MR_OK)
        rc = mr_iterator_next(s->it, WANT, &b, &s->st);
    if (rc == MR_OK)
        rc = struct_array(out, mr_dataset_spec(s->ds), &b, &column, &s->st);
    mr_block_reset(&b);
    return rc == MR_OK || rc == MR_END ? 0 : report(s);
}

static const char *get_last_error(struct ArrowArrayStream *self)
{
    stream *s = self->private_data;
    return *s->message ? s->message : NULL;
}

static void release_stream(struct ArrowArrayStream *self)
{
    stream *s = self->private_data;
    mr_iterator_close(s->it);
    mr_dataset_unref(s->ds);
    free(s);
    self->release = NULL;
}

mr_code mrpy_arrow_stream(struct ArrowArrayStream *out, mr_dataset *ds, mr_status *st)
{
    struct ArrowSchema schema = {0};
    MR_TRY(mr_dataset_check(ds, st));
    MR_TRY(struct_schema(&schema, mr_dataset_spec(ds), "", st));
    schema.release(&schema);
    stream *s = calloc(1, sizeof *s);
    if (!s)
        return mr_fail_memory(st, sizeof *s, "a stream");
    s->ds = mr_dataset_ref(ds);
    *out = (struct ArrowArrayStream){get_schema, get_next, get_last_error, release_stream, s};
    return MR_OK;
}

mr_code mrpy_export_row(struct ArrowArray *array, struct ArrowSchema *schema, const mr_array *a,
                        const mr_leaf *leaf, mr_status *st)
{
    mr_array entries = {0};
    mr_leaf entry = {.dtype = a->dtype, .rank = (int8_t)(leaf->rank - 1)};
    if (a->rank == 0)
        return mr_export_arrow(array, schema, a, "", st);
    MR_TRY(mr_array_ungroup(&entries, a, 0, st));
    if (leaf->rank > 0)
        memcpy(entry.shape, leaf->shape + 1, (size_t)entry.rank * sizeof *entry.shape);
    if (leaf->ragged)
        entry.shape[0] = -1;
    mr_code rc = leaf->rank < 0 ? mr_export_arrow(array, schema, &entries, "", st)
                                : export_column(array, schema, &entries, &entry, "", st);
    mr_array_reset(&entries);
    return rc;
}
