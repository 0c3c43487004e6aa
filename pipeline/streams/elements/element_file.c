/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/streams/elements/element_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>

#include "pipeline/bytes.h"
#include "pipeline/engine/op_source.h"
#include "pipeline/engine/position.h"
#include "pipeline/crc32c.h"
#include "pipeline/formats/tfrecord/tfrecord.h"
#include "pipeline/params/infer.h"
#include "pipeline/system/retry.h"

enum { HEADER = 1, BLOCK = 2, END = 3, ORIGIN = 4, END_WITH_ORIGIN = 5 };
enum { END_BYTES = 9, LONG_END_BYTES = 17, FRAMING = 16, CHUNK = 1 << 20 };
static const char magic[4] = "MRE1";

/* ---- specs ---- */

static mr_code put_spec(const mr_spec *s, mr_state_w *w, mr_status *st)
{
    mr_spec_kind kind = mr_spec_kind_of(s);
    MR_TRY(mr_state_put_u64(w, kind, st));
    if (kind == MR_SPEC_LEAF) {
        const mr_leaf *leaf = mr_spec_leaf(s, 0);
        MR_TRY(mr_state_put_u64(w, leaf->dtype, st));
        MR_TRY(mr_state_put_u64(w, (uint64_t)(leaf->rank + 1), st));
        MR_TRY(mr_state_put_u64(w, leaf->ragged, st));
        for (int d = 0; d < leaf->rank; d++)
            MR_TRY(mr_state_put_u64(w, (uint64_t)(leaf->shape[d] + 1), st));
        return leaf->dtype == MR_DATASET ? put_spec(leaf->element, w, st) : MR_OK;
    }
    size_t n = mr_spec_n_children(s);
    MR_TRY(mr_state_put_u64(w, n, st));
    for (size_t i = 0; i < n; i++) {
        const char *name = mr_spec_child_name(s, i);
        if (kind == MR_SPEC_RECORD)
            MR_TRY(mr_state_put_bytes(w, name, strlen(name), st));
        MR_TRY(put_spec(mr_spec_child(s, i), w, st));
    }
    return MR_OK;
}

static mr_code get_spec(mr_state_r *r, int depth, mr_spec **out, mr_status *st);

static mr_code get_leaf(mr_state_r *r, int depth, mr_spec **out, mr_status *st)
{
    uint64_t dtype, rank, ragged, dim;
    MR_TRY(mr_state_get_u64(r, &dtype, st));
    MR_TRY(mr_state_get_u64(r, &rank, st));
    MR_TRY(mr_state_get_u64(r, &ragged, st));
    if (dtype > MR_DATASET || rank > MR_MAX_RANK + 1 || ragged > 1)
        return mr_state_damaged(st, "a spec has an unknown type");
    mr_leaf leaf = {.dtype = (mr_dtype)dtype, .rank = (int8_t)((int)rank - 1), .ragged = ragged};
    for (int d = 0; d < leaf.rank; d++) {
        MR_TRY(mr_state_get_u64(r, &dim, st));
        if (dim > INT64_MAX)
            return mr_state_damaged(st, "a dimension is out of range");
        leaf.shape[d] = (int64_t)dim - 1;
    }
    if (leaf.dtype != MR_DATASET)
        return mr__inferred(mr_spec_of_leaf(&leaf), out, st);
    mr_spec *element = NULL;
    MR_TRY(get_spec(r, depth + 1, &element, st));
    return mr__inferred(mr_spec_dataset(element), out, st);
}

static mr_code get_children(mr_state_r *r, int depth, bool record, uint64_t n, mr_spec **children,
                            char **names, mr_status *st)
{
    for (uint64_t i = 0; i < n; i++) {
        const void *name;
        size_t size;
        if (record) {
            MR_TRY(mr_state_get_bytes(r, &name, &size, st));
            names[i] = mr_malloc(size + 1);
            if (!names[i])
                return mr_fail_memory(st, size, "a name");
            if (size)
                memcpy(names[i], name, size);
            names[i][size] = '\0';
        }
        MR_TRY(get_spec(r, depth + 1, &children[i], st));
    }
    const char *twice = NULL;
    if (record)
        MR_TRY(mr__name_twice(names, (size_t)n, &twice, st));
    return twice ? mr_state_damaged(st, "two components have one name") : MR_OK;
}

static mr_code get_spec(mr_state_r *r, int depth, mr_spec **out, mr_status *st)
{
    uint64_t kind, n;
    MR_TRY(mr_state_get_u64(r, &kind, st));
    if (kind > MR_SPEC_RECORD || depth > MR__SPEC_MAX_DEPTH)
        return mr_state_damaged(st, "a spec has an unknown kind");
    if (kind == MR_SPEC_LEAF)
        return get_leaf(r, depth, out, st);
    MR_TRY(mr_state_get_u64(r, &n, st));
    if (n > MR__SPEC_MAX_LEAVES)
        return mr_state_damaged(st, "a spec has too many components");
    mr_spec **children = mr_calloc((size_t)n + 1, sizeof(mr_spec *));
    char **names = mr_calloc((size_t)n + 1, sizeof(char *));
    bool record = kind == MR_SPEC_RECORD;
    mr_code rc = children && names ? get_children(r, depth, record, n, children, names, st)
                                   : mr_fail_memory(st, (size_t)n * sizeof(mr_spec *), "a spec");
    if (rc == MR_OK)
        rc = mr__inferred(record ? mr_spec_record((const char *const *)names, children, (size_t)n)
                                 : mr_spec_tuple(children, (size_t)n),
                          out, st);
    else
        for (uint64_t i = 0; children && i < n; i++)
            mr_spec_unref(children[i]);
    for (uint64_t i = 0; names && i < n; i++)
        mr_free(names[i]);
    mr_free(children);
    mr_free(names);
    return rc;
}

/* ---- writing ---- */

struct mr__element_writer {
    mr_tfrecord_writer *file;
    uint64_t rows, bytes; /* bytes: of the records so far */
};

static mr_code put_header(void *ctx, mr_state_w *w, mr_status *st)
{
    MR_TRY(mr_state_put_u64(w, HEADER, st));
    for (size_t i = 0; i < sizeof magic; i++)
        MR_TRY(mr_state_put_u64(w, (unsigned char)magic[i], st));
    return put_spec(ctx, w, st);
}

static mr_code put_block(void *ctx, mr_state_w *w, mr_status *st)
{
    MR_TRY(mr_state_put_u64(w, BLOCK, st));
    return mr_state_put_block(w, ctx, st);
}

static mr_code append_bytes(mr__element_writer *w, const void *p, size_t n, mr_status *st)
{
    MR_TRY(mr_tfrecord_writer_append(w->file, p, n, st));
    w->bytes += FRAMING + n;
    return MR_OK;
}

static mr_code append(mr__element_writer *w, mr_code (*put)(void *, mr_state_w *, mr_status *),
                      const void *ctx, mr_status *st)
{
    mr_buffer *bytes = NULL;
    MR_TRY(mr__state_bytes(put, (void *)(uintptr_t)ctx, &bytes, st));
    mr_code rc = append_bytes(w, mr_buffer_data(bytes), mr_buffer_size(bytes), st);
    mr_buffer_unref(bytes);
    return rc;
}

mr_code mr__element_writer_open(mr__element_writer **out, const char *path, const mr_spec *spec,
                                mr_status *st)
{
    mr__element_writer *w = mr_calloc(1, sizeof *w);
    if (!w)
        return mr_fail_memory(st, sizeof *w, "a file of elements");
    mr_code rc =
        mr_tfrecord_writer_open(&w->file, path, &(mr_tfrecord_writer_opts){.sync = true}, st);
    if (rc == MR_OK)
        rc = append(w, put_header, spec, st);
    if (rc == MR_OK)
        *out = w;
    else
        mr__element_writer_abort(w);
    return rc;
}

mr_code mr__element_writer_add(mr__element_writer *w, const mr_block *b, mr_status *st)
{
    MR_TRY(append(w, put_block, b, st));
    w->rows += b->rows;
    return MR_OK;
}

struct origin_to_put {
    const mr__element_origin *origin;
    mr__inputs_read *read;
};

static mr_code put_origin(void *ctx, mr_state_w *w, mr_status *st)
{
    const struct origin_to_put *p = ctx;
    MR_TRY(mr_state_put_u64(w, ORIGIN, st));
    return mr__element_origin_put(p->origin, p->read, w, st);
}

static mr_code append_end(mr__element_writer *w, const mr__element_origin *origin,
                          mr__inputs_read *read, mr_status *st)
{
    unsigned char end[LONG_END_BYTES] = {origin ? END_WITH_ORIGIN : END};
    mr__store_le(end + 1, w->rows, 8);
    mr__store_le(end + END_BYTES, w->bytes, 8);
    if (origin)
        MR_TRY(append(w, put_origin, &(struct origin_to_put){origin, read}, st));
    return append_bytes(w, end, origin ? LONG_END_BYTES : END_BYTES, st);
}

mr_code mr__element_writer_close(mr__element_writer *w, const mr__element_origin *origin,
                                 mr__inputs_read *read, mr_status *st)
{
    mr_code rc = append_end(w, origin, read, st);
    if (rc == MR_OK) {
        rc = mr_tfrecord_writer_close(w->file, st);
        w->file = NULL;
    }
    mr__element_writer_abort(w);
    return rc;
}

void mr__element_writer_abort(mr__element_writer *w)
{
    if (!w)
        return;
    mr_tfrecord_writer_abort(w->file);
    mr_free(w);
}

/* ---- reading ---- */

struct mr__element_reader {
    mr_reader *file;
    char *path;
    mr_spec *spec;
    mr_block block; /* rows from `at` on are left */
    size_t at;
    uint64_t rows; /* in the blocks so far */
    bool ended;
};

static mr_code damaged(const mr__element_reader *r, const char *what, mr_status *st)
{
    (void)mr_fail(st, MR_DATA_LOSS, "%s", what);
    mr_status_at(st, r->path, -1, -1);
    return MR_DATA_LOSS;
}

/* The next record; MR_END: no more records. */
static mr_code next_record(mr__element_reader *r, mr_array *record, mr_status *st)
{
    *record = (mr_array){0};
    return mr_reader_read(r->file, 1, CHUNK, record, st);
}

static const mr_bytes *bytes_of(const mr_array *record)
{
    return record->data;
}

static mr_code get_header(void *ctx, mr_state_r *in, mr_status *st)
{
    mr__element_reader *r = ctx;
    uint64_t v;
    MR_TRY(mr_state_get_u64(in, &v, st));
    bool good = v == HEADER;
    for (size_t i = 0; i < sizeof magic; i++) {
        MR_TRY(mr_state_get_u64(in, &v, st));
        good = good && v == (unsigned char)magic[i];
    }
    if (!good)
        return mr_state_damaged(st, "another format, or another version");
    return get_spec(in, 0, &r->spec, st);
}

static mr_code read_header(mr__element_reader *r, mr_status *st)
{
    mr_array record;
    mr_status why;
    mr_code rc = next_record(r, &record, st);
    if (rc == MR_END)
        return damaged(r, "the file is empty: no elements were saved to it", st);
    MR_TRY(rc);
    const mr_bytes *b = bytes_of(&record);
    rc = mr__state_read(b->data, b->size, get_header, r, &why);
    mr_array_reset(&record);
    if (rc == MR_INVALID_ARGUMENT)
        return damaged(r, "this is not a file of elements that this version can read", st);
    if (rc != MR_OK && st)
        *st = why;
    return rc;
}

/* A pipe would have to be read to its end to count its elements, and may be endless. */
static mr_code check_kind(const char *path, mr_status *st)
{
    struct stat s;
    if (mr__sys->stat(path, &s) != 0 || S_ISREG(s.st_mode) || S_ISDIR(s.st_mode))
        return MR_OK; /* or the error of opening it */
    mr_fail(st, MR_FAILED_PRECONDITION,
            "this is not a regular file, the only kind that can hold elements");
    mr_status_at(st, path, -1, -1);
    return MR_FAILED_PRECONDITION;
}

mr_code mr__element_reader_open(mr__element_reader **out, const mr_iter *it, const char *path,
                                mr_status *st)
{
    mr__element_reader *r = mr_calloc(1, sizeof *r);
    mr_file_opts opts = {.strict = true};
    if (it) {
        opts.no_uring = mr_iter_no_uring(it);
        opts.cancel = mr_iter_cancel(it);
    }
    mr_code rc = r && (r->path = mr_strdup(path)) ? MR_OK : mr_fail_memory(st, sizeof *r, "a file");
    if (rc == MR_OK)
        rc = check_kind(path, st);
    if (rc == MR_OK)
        rc = mr_reader_open(&r->file, &mr_format_tfrecord, path, &opts, st);
    if (rc == MR_OK)
        rc = read_header(r, st);
    if (rc == MR_OK)
        *out = r;
    else
        mr__element_reader_close(r);
    return rc;
}

const mr_spec *mr__element_reader_spec(const mr__element_reader *r)
{
    return r->spec;
}

struct reading {
    mr__element_reader *r;
    const mr_spec *spec;
};

static mr_code get_record(void *ctx, mr_state_r *in, mr_status *st)
{
    struct reading *g = ctx;
    uint64_t kind;
    MR_TRY(mr_state_get_u64(in, &kind, st));
    if (kind != BLOCK)
        return mr_state_damaged(st, "a record of an unknown kind");
    MR_TRY(mr_state_get_block(in, g->spec, &g->r->block, st));
    return g->r->block.rows ? MR_OK : mr_state_damaged(st, "a block without rows");
}

static mr_code read_end(mr__element_reader *r, const mr_bytes *b, mr_status *st)
{
    if (mr__load_le(b->data + 1, 8) != r->rows)
        return damaged(r, "the file's number of elements is not the one it says", st);
    r->ended = true;
    return MR_END;
}

static bool is_end(const mr_bytes *b)
{
    return (b->size == END_BYTES && b->data[0] == END) ||
           (b->size == LONG_END_BYTES && b->data[0] == END_WITH_ORIGIN);
}

static mr_code read_block(mr__element_reader *r, const mr_bytes *b, const mr_spec *spec,
                          mr_status *st)
{
    mr_status why;
    struct reading g = {r, spec};
    mr_code rc = mr__state_read(b->data, b->size, get_record, &g, &why);
    if (rc == MR_INVALID_ARGUMENT) {
        r->ended = true;
        mr_block_clear(&r->block);
        return damaged(r, "a block of elements is damaged, or of elements of another type", st);
    }
    if (rc == MR_OK)
        r->rows += r->block.rows;
    else if (st)
        *st = why;
    return rc;
}

/* The next block, with at least a row; MR_END. */
static mr_code fill(mr__element_reader *r, const mr_spec *spec, mr_status *st)
{
    mr_array record;
    if (r->ended)
        return MR_END;
    mr_code rc = next_record(r, &record, st);
    if (rc == MR_OK && bytes_of(&record)->size && bytes_of(&record)->data[0] == ORIGIN) {
        mr_array_reset(&record);
        rc = next_record(r, &record, st); /* the last one */
    }
    if (rc == MR_END) {
        r->ended = true;
        return damaged(r, "the file stops before its end", st);
    }
    if (rc != MR_OK) {
        r->ended = rc == MR_DATA_LOSS;
        return rc;
    }
    const mr_bytes *b = bytes_of(&record);
    rc = is_end(b) ? read_end(r, b, st) : read_block(r, b, spec, st);
    mr_array_reset(&record);
    r->at = 0;
    return rc;
}

mr_code mr__element_reader_next(mr__element_reader *r, const mr_spec *spec, size_t want,
                                mr_block *out, mr_status *st)
{
    if (r->at == r->block.rows) {
        mr_block_clear(&r->block);
        r->at = 0;
        MR_TRY(fill(r, spec, st));
    }
    size_t left = r->block.rows - r->at, n = left < want ? left : want;
    MR_TRY(mr_block_slice(out, &r->block, r->at, n, st));
    r->at += n;
    return MR_OK;
}

void mr__element_reader_close(mr__element_reader *r)
{
    if (!r)
        return;
    mr_reader_close(r->file);
    mr_free(r->path);
    mr_spec_unref(r->spec);
    mr_block_reset(&r->block);
    mr_free(r);
}

/* ---- the last record ---- */

static mr_code open_file(const char *path, int *fd, off_t *size, mr_status *st)
{
    struct stat info;
    *fd = mr__sys->open(path, O_RDONLY | O_CLOEXEC, 0);
    if (*fd < 0)
        return mr_fail_errno(st, errno, "cannot open %s", path);
    mr_code rc = MR_OK;
    if (mr__sys->fstat(*fd, &info) != 0)
        rc = mr_fail_errno(st, errno, "cannot read %s", path);
    *size = info.st_size;
    if (rc != MR_OK)
        mr__sys->close(*fd);
    return rc;
}

/* Reads the record of n bytes at that place with its framing into p: its data begins at byte 12.
 * *there = false: it is not there. */
static mr_code read_record(const char *path, int fd, off_t at, unsigned char *p, size_t n,
                           bool *there, mr_status *st)
{
    *there = false;
    ssize_t got = mr__read_all(fd, p, FRAMING + n, at);
    if (got < 0)
        return mr_fail_errno(st, errno, "cannot read %s", path);
    *there = got == (ssize_t)(FRAMING + n) && mr__load_le(p, 8) == n &&
             mr_crc32c_mask(mr_crc32c(p, 8)) == mr__load_le(p + 8, 4) &&
             mr_crc32c_mask(mr_crc32c(p + 12, n)) == mr__load_le(p + 12 + n, 4);
    return MR_OK;
}

/* The last record, of n bytes that begin with `kind`. */
static mr_code read_last(const char *path, int fd, off_t size, int kind, unsigned char *p, size_t n,
                         bool *there, mr_status *st)
{
    *there = false;
    if (size < (off_t)(FRAMING + n))
        return MR_OK;
    MR_TRY(read_record(path, fd, size - (off_t)(FRAMING + n), p, n, there, st));
    *there = *there && p[12] == kind;
    return MR_OK;
}

mr_code mr__element_file_count(const char *path, uint64_t *rows, mr_status *st)
{
    unsigned char t[FRAMING + LONG_END_BYTES];
    int fd;
    off_t size;
    bool there;
    MR_TRY(open_file(path, &fd, &size, st));
    mr_code rc = read_last(path, fd, size, END, t, END_BYTES, &there, st);
    if (rc == MR_OK && !there)
        rc = read_last(path, fd, size, END_WITH_ORIGIN, t, LONG_END_BYTES, &there, st);
    mr__sys->close(fd);
    if (rc == MR_OK && !there)
        rc = mr_fail(st, MR_DATA_LOSS, "%s stops before its end, or is not a file of elements",
                     path);
    if (rc == MR_OK)
        *rows = mr__load_le(t + 13, 8);
    return rc;
}

static mr_code get_origin(void *ctx, mr_state_r *in, mr_status *st)
{
    uint64_t kind;
    MR_TRY(mr_state_get_u64(in, &kind, st));
    if (kind != ORIGIN)
        return mr_state_damaged(st, "a record of another kind");
    return mr__element_origin_get(ctx, in, st);
}

/* From the record at that place, which ends where the last one begins. */
static mr_code read_origin(const char *path, int fd, off_t at, off_t end, mr__element_origin *out,
                           mr_status *st)
{
    mr_status why;
    bool there = false;
    if (at < 0 || at >= end - FRAMING)
        return mr_fail(st, MR_DATA_LOSS, "%s is damaged: it does not say what it was made from",
                       path);
    size_t n = (size_t)(end - at) - FRAMING;
    unsigned char *p = mr_malloc(FRAMING + n);
    if (!p)
        return mr_fail_memory(st, n, "what a file was made from");
    mr_code rc = read_record(path, fd, at, p, n, &there, st);
    if (rc == MR_OK && there) {
        rc = mr__state_read(p + 12, n, get_origin, out, &why);
        there = rc != MR_INVALID_ARGUMENT;
        if (rc != MR_OK && st)
            *st = why;
    }
    mr_free(p);
    return there || (rc != MR_OK && rc != MR_INVALID_ARGUMENT)
               ? rc
               : mr_fail(st, MR_DATA_LOSS,
                         "%s is damaged: what it says it was made from cannot be read", path);
}

mr_code mr__element_file_origin(const char *path, mr__element_origin *out, bool *has, mr_status *st)
{
    unsigned char t[FRAMING + LONG_END_BYTES];
    int fd;
    off_t size;
    *out = (mr__element_origin){0};
    MR_TRY(open_file(path, &fd, &size, st));
    mr_code rc = read_last(path, fd, size, END_WITH_ORIGIN, t, LONG_END_BYTES, has, st);
    uint64_t at = rc == MR_OK && *has ? mr__load_le(t + 12 + END_BYTES, 8) : 0;
    if (rc == MR_OK && *has)
        rc = read_origin(path, fd, at > INT64_MAX ? -1 : (off_t)at,
                         size - (off_t)(FRAMING + LONG_END_BYTES), out, st);
    mr__sys->close(fd);
    if (rc != MR_OK)
        mr__element_origin_reset(out);
    return rc;
}
