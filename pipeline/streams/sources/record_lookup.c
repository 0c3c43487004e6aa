/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/streams/sources/record_lookup.h"

#include <inttypes.h>

#include "pipeline/engine/op_source.h"
#include "pipeline/streams/sources/zstd_record_rows.h"

enum { MOST_ROWS = 256, MOST_BYTES = 1 << 20 };

/* The next records to read, in one allocation. */
typedef struct batch {
    size_t n, bytes;
    mr__record_place *places;
    mr__scattered_read reads[];
} batch;

static mr_code choose(const mr_iter *it, const mr__record_lookup *l, const uint64_t *index,
                      size_t most, batch **out, mr_status *st)
{
    most = most < MOST_ROWS ? most : MOST_ROWS;
    size_t size = sizeof(batch) + most * (sizeof *(*out)->reads + sizeof *(*out)->places);
    batch *b = mr_malloc(size);
    if (!b)
        return mr_fail_memory(st, size, "reads of records");
    b->places = (mr__record_place *)(b->reads + most);
    b->n = b->bytes = 0;
    for (; b->n < most; b->n++) {
        mr__record_place *p = &b->places[b->n];
        l->find(it, index[b->n], p);
        if (b->n && b->bytes + p->size > MOST_BYTES)
            break;
        b->reads[b->n] =
            (mr__scattered_read){.file = p->file, .offset = p->offset, .size = p->size};
        b->bytes += p->size;
    }
    *out = b;
    return MR_OK;
}

/* The record that was read; or the error in its place. */
static mr_code check_record(mr_iter *it, const mr__record_lookup *l, const batch *b, size_t i,
                            mr_bytes *view, mr_status *st)
{
    const mr__scattered_read *v = &b->reads[i];
    mr_code rc = MR_OK;
    if (v->err) {
        rc = mr_fail_errno(st, v->err, "cannot read the record");
        if (v->why) {
            rc = v->why->code;
            if (st)
                *st = *v->why;
        }
        mr_iter_fail_open(it, rc, st);
    } else if (v->got < v->size)
        rc = mr_fail(st, MR_DATA_LOSS, "truncated record at %" PRId64 ": the file ends within it",
                     v->offset);
    else if (l->check)
        rc = l->check(&b->places[i], v->data, view, st);
    else
        *view = (mr_bytes){(const char *)v->data, v->size};
    if (rc != MR_OK)
        mr_status_at(st, l->records->paths[v->file], v->offset, b->places[i].record);
    return rc;
}

/* Decompresses the first n frames, up to the first that fails. *n: the good ones; without any,
 * the error of the first. */
static mr_code unpack(mr_iter *it, const mr__record_lookup *l, const batch *b, mr_array *column,
                      size_t *n, mr_status *st)
{
    mr_array rows = {0};
    size_t done = 0;
    MR_TRY(mr_array_alloc(&rows, MR_STRING, 0, NULL, *n, st));
    mr_code rc = MR_OK;
    for (; done < *n && rc == MR_OK; done++) {
        mr_array one = {0};
        mr_status why;
        const char *path = l->records->paths[b->reads[done].file];
        rc = mr__zstd_record_rows_unpack(it, l->frames, path, (const mr_bytes *)column->data + done,
                                         1, 1, &one, &why);
        if (rc == MR_OK) {
            ((mr_bytes *)rows.data)[done] = *(const mr_bytes *)one.data;
            rc = mr_buffer_hold(rows.owner, one.owner, st);
        } else if (rc == MR_CANCELLED || mr_status_is_of_no_element(&why)) {
            *st = why;
        } else {
            mr_status_at(&why, path, b->reads[done].offset, b->places[done].record);
            *st = why;
            mr_array_reset(&one);
            if (done)
                rc = MR_OK;
            break;
        }
        mr_array_reset(&one);
    }
    if (rc != MR_OK) {
        mr_array_reset(&rows);
        return rc;
    }
    mr_array_reset(column);
    mr_array_move(column, &rows);
    *n = done;
    return MR_OK;
}

static mr_code set_identities(mr_iter *it, const mr__record_lookup *l, const batch *b,
                              mr_block *rows, mr_status *st)
{
    mr_identity *ids;
    if (!mr_iter_identities(it))
        return MR_OK;
    MR_TRY(mr_identities_alloc(&rows->ids, rows->rows, &ids, st));
    for (size_t i = 0; i < rows->rows; i++) {
        ids[i] = (mr_identity){.source = it->source,
                               .file = b->reads[i].file,
                               .ordinal = (uint64_t)b->places[i].record,
                               .epoch = mr_iter_epoch(it)};
        MR_TRY(mr_iter_name_file(it, &ids[i], l->records->paths[b->reads[i].file], st));
    }
    return MR_OK;
}

/* out = the good records up to the first bad one. */
static mr_code take_in(mr_iter *it, const mr__record_lookup *l, const batch *b, mr_buffer *memory,
                       mr_block *out, mr_status *st)
{
    MR_TRY(mr_block_prepare(out, 1, st));
    mr_array *column = &out->columns[0];
    MR_TRY(mr_array_alloc(column, MR_STRING, 0, NULL, b->n, st));
    MR_TRY(mr_buffer_hold(column->owner, memory, st));
    mr_bytes *views = column->data;
    mr_code rc = MR_OK;
    size_t n = 0;
    for (; n < b->n; n++) {
        mr_status why;
        rc = check_record(it, l, b, n, &views[n], &why);
        if (rc == MR_OK)
            continue;
        if (n == 0)
            *st = why;
        break;
    }
    if (n == 0)
        return rc;
    if (l->frames)
        MR_TRY(unpack(it, l, b, column, &n, st));
    column->rows = out->rows = n;
    return set_identities(it, l, b, out, st);
}

mr_code mr__record_lookup_at(mr_iter *it, mr__record_lookup *l, const uint64_t *index, size_t n,
                             mr_block *out, mr_status *st)
{
    mr_buffer *memory = NULL;
    batch *b = NULL;
    if (!l->files) {
        const mr_iterator_opts *o = mr_iter_opts(it);
        const mr__read_opts r = {.no_uring = mr_iter_no_uring(it),
                                 .cancel = mr_iter_cancel(it),
                                 .on_read = o->on_read,
                                 .on_read_ctx = o->on_read_ctx};
        MR_TRY(mr__scattered_open(&l->files, l->records->paths, l->records->n_files,
                                  l->records->marks, &r, st));
    }
    MR_TRY(choose(it, l, index, n, &b, st));
    mr_code rc = mr_buffer_alloc(&memory, b->bytes, st);
    uint8_t *to = memory ? mr_buffer_data(memory) : NULL;
    for (size_t i = 0; rc == MR_OK && i < b->n; to += b->reads[i++].size)
        b->reads[i].data = to;
    if (rc == MR_OK)
        rc = mr__scattered_run(l->files, b->reads, b->n, memory, st);
    if (rc == MR_OK)
        rc = take_in(it, l, b, memory, out, st);
    for (size_t i = 0; i < b->n; i++)
        mr_free(b->reads[i].why);
    mr_buffer_unref(memory);
    mr_free(b);
    return rc;
}

void mr__record_lookup_close(mr__record_lookup *l)
{
    mr__scattered_close(l->files);
    l->files = NULL;
}
