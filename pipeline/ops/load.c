/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the elements that save wrote. Their type and number are read when the graph is built. */
#include "pipeline/ops/sources.h"

#include "pipeline/engine/op_source.h"
#include "pipeline/files/file_name.h"
#include "pipeline/streams/elements/element_file.h"
#include "pipeline/streams/elements/file_cache.h"

struct params {
    char *path;
    mr_load_opts o;
};

struct state {
    char *file;
    mr__element_reader *reader; /* NULL: not opened yet */
    uint64_t at;                /* rows delivered */
    bool ended;                 /* after an error */
};

static mr_code open(mr_iter *it, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    char *folder;
    MR_TRY(mr_iter_file_path(it, p->path, &folder, st));
    mr_code rc = mr__file_cache_path(folder, MR_ELEMENTS_FILE, &s->file, st);
    mr_free(folder);
    return rc;
}

/* The file may have been replaced since the graph was built. */
static mr_code open_reader(mr_iter *it, mr_status *st)
{
    struct state *s = it->state;
    mr_code rc = mr__iter_note_file(it, s->file, st);
    if (rc == MR_OK)
        rc = mr__element_reader_open(&s->reader, it, s->file, st);
    if (rc != MR_OK)
        mr_status_of_no_element(st);
    return rc;
}

static mr_code read_rows(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    struct state *s = it->state;
    if (!s->reader)
        MR_TRY(open_reader(it, st));
    MR_TRY(mr__element_reader_next(s->reader, it->spec, want, out, st));
    mr_identities_reset(&out->ids); /* those of the saved graph */
    return MR_OK;
}

static mr_code next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    struct state *s = it->state;
    if (s->ended)
        return MR_END;
    mr_code rc = read_rows(it, want, out, st);
    if (rc == MR_PERMISSION_DENIED) /* it has datasets that may not run */
        mr_status_of_no_element(st);
    s->ended = rc == MR_DATA_LOSS && !mr_status_is_of_no_element(st);
    MR_TRY(rc);
    MR_TRY(mr_iter_set_identities(it, out, 0, s->at, st));
    s->at += out->rows;
    return MR_OK;
}

static void close(mr_iter *it)
{
    struct state *s = it->state;
    mr__element_reader_close(s->reader);
    mr_free(s->file);
}

static mr_code save(mr_iter *it, mr_state_w *w, mr_status *st)
{
    const struct state *s = it->state;
    MR_TRY(mr_state_put_u64(w, s->ended, st));
    return mr_state_put_u64(w, s->at, st);
}

static mr_code restore(mr_iter *it, mr_state_r *r, mr_status *st)
{
    struct state *s = it->state;
    uint64_t ended, at;
    MR_TRY(mr_state_get_u64(r, &ended, st));
    MR_TRY(mr_state_get_u64(r, &at, st));
    mr__element_reader_close(s->reader);
    s->reader = NULL;
    s->ended = ended;
    mr_block b = MR_BLOCK_EMPTY;
    mr_code rc = MR_OK;
    for (s->at = 0; s->at < at && rc == MR_OK; s->at += b.rows) {
        uint64_t left = at - s->at;
        mr_block_clear(&b);
        rc = read_rows(it, left < SIZE_MAX ? (size_t)left : SIZE_MAX, &b, st);
    }
    mr_block_reset(&b);
    if (rc == MR_END)
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "%s has fewer elements than when the position was saved", s->file);
    return rc;
}

static mr_code file_of(const void *params, char **file, mr_status *st)
{
    char *folder = NULL;
    MR_TRY(mr__file_name(((const struct params *)params)->path, &folder, st));
    mr_code rc = mr__file_cache_path(folder, MR_ELEMENTS_FILE, file, st);
    mr_free(folder);
    return rc;
}

/* Datasets are graphs, which the file's writer chose. */
static mr_code check_datasets(const struct params *p, const mr_spec *spec, mr_status *st)
{
    if (p->o.allow_datasets || !mr__holds_datasets(spec))
        return MR_OK;
    return mr_fail(
        st, MR_PERMISSION_DENIED,
        "load: the elements in %.400s contain datasets, which would run with your rights "
        "whatever its writer put there; if you trust the file, say "
        "load(\"%.400s\", allow_datasets=true)",
        p->path, p->path);
}

static mr_code infer(const mr_dataset *self, const void *params, mr_spec **out, mr_status *st)
{
    if (mr_param_unknown(self, offsetof(struct params, path)))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "load: path must be known when the graph is built, for the type of the "
                       "elements");
    char *file;
    mr__element_reader *reader = NULL;
    MR_TRY(file_of(params, &file, st));
    mr_code rc = mr__element_reader_open(&reader, NULL, file, st);
    if (rc == MR_OK)
        rc = check_datasets(params, mr__element_reader_spec(reader), st);
    if (rc == MR_OK)
        *out = mr_spec_ref(mr__element_reader_spec(reader));
    mr__element_reader_close(reader);
    mr_free(file);
    return rc;
}

static int64_t cardinality(const mr_dataset *self, const void *params, const int64_t *in)
{
    (void)self;
    (void)in;
    char *file;
    uint64_t rows = 0;
    if (file_of(params, &file, NULL) != MR_OK)
        return MR_UNKNOWN_COUNT;
    mr_code rc = mr__element_file_count(file, &rows, NULL);
    mr_free(file);
    return rc == MR_OK && rows <= INT64_MAX ? (int64_t)rows : MR_UNKNOWN_COUNT;
}

static mr_code check(const void *params, mr_status *st)
{
    return mr__file_cache_check_path("load", ((const struct params *)params)->path, st);
}

static const mr_param table[] = {
    MR_ARG(struct params, path, .doc = "The folder that save wrote to."),
    MR_OPT(struct params, allow_datasets,
           .doc = "Accepts elements that are datasets: graphs that the file's writer chose. Graphs "
                  "that write files are still refused."),
    {0}};

const mr_op mr_op_load = {
    .abi = MR_ABI_VERSION,
    .name = "load",
    .doc = "The elements that save wrote to a folder.",
    .example = "load(\"elements\")",
    .order_doc = "as save wrote them",
    .memory_doc = "a block",
    .state_doc = "a counter",
    .count_doc = "the number of elements saved",
    .params = table,
    .params_size = sizeof(struct params),
    .iter_size = sizeof(struct state),
    .role = MR_ROLE_SOURCE,
    .props = MR_OP_OUTSIDE | MR_OP_LATE_COUNT,
    .check = check,
    .infer = infer,
    .cardinality = cardinality,
    .open = open,
    .next = next,
    .close = close,
    .save = save,
    .restore = restore,
};

mr_dataset *mr_load(const char *path)
{
    return mr_load_with(path, NULL);
}

mr_dataset *mr_load_with(const char *path, const mr_load_opts *opts)
{
    struct params p = {.path = (char *)(uintptr_t)path};
    if (opts)
        p.o = *opts;
    return mr_dataset_new(&mr_op_load, &p, NULL, 0);
}
