/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/streams/elements/element_writer.h"

#include <stdio.h>
#include <string.h>
#include <sys/types.h>

#include "pipeline/memory/alloc.h"
#include "pipeline/streams/elements/element_example.h"
#include "pipeline/streams/elements/element_json.h"
#include "pipeline/streams/elements/element_npy.h"

enum { WANT = 1024 };

/* The encoder of elements as records, by file format. */
typedef struct encoder {
    mr_shard_format format;
    const mr_spec *spec;
    const mr_iterator_opts *opts;
    mr_element_encoder *example;
    mr_npy_encoder *npy;
    bool begun; /* npy and formats of rows: the types are set */
    FILE *line; /* jsonl: what is printed to it is appended to text */
    char *text;
    size_t size, capacity;
} encoder;

static ssize_t append_text(void *cookie, const char *s, size_t n)
{
    encoder *e = cookie;
    if (MR_GROW(e->text, e->capacity, e->size + n, SIZE_MAX / 2, "a line", NULL) != MR_OK)
        return 0;
    memcpy(e->text + e->size, s, n);
    e->size += n;
    return (ssize_t)n;
}

static bool is_of_rows(mr_shard_format f)
{
    return f == MR_SHARDS_ARROW || f == MR_SHARDS_PARQUET;
}

static mr_code encoder_open(encoder *e, mr_status *st)
{
    switch (e->format) {
    case MR_SHARDS_JSONL:
        e->line = fopencookie(e, "w", (cookie_io_functions_t){.write = append_text});
        return e->line ? MR_OK : mr_fail(st, MR_RESOURCE_EXHAUSTED, "out of memory for a line");
    case MR_SHARDS_NPY:
        return mr_npy_encoder_new(&e->npy, e->spec, st);
    case MR_SHARDS_ARROW:
    case MR_SHARDS_PARQUET:
        return mr_shard_format_check(e->format, e->spec, st);
    default:
        return mr_element_encoder_new(&e->example, e->spec, st);
    }
}

static void encoder_close(encoder *e)
{
    if (e->line)
        fclose(e->line);
    mr_free(e->text);
    mr_npy_encoder_free(e->npy);
    mr_element_encoder_free(e->example);
}

/* b NULL: there are no elements. */
static mr_code begin(encoder *e, const mr_block *b, mr_shard_writer *w, mr_status *st)
{
    mr_npy_entry entry;
    if (e->begun || (e->format != MR_SHARDS_NPY && !is_of_rows(e->format)))
        return MR_OK;
    e->begun = true;
    if (is_of_rows(e->format))
        return mr_shard_writer_set_spec(w, e->spec, b, st);
    mr_code rc = mr_npy_encoder_begin(e->npy, b, &entry, st);
    return rc == MR_OK ? mr_shard_writer_set_entry(w, entry.descr, entry.rank, entry.shape, st)
                       : rc;
}

/* *record: borrowed until the next call. */
static mr_code encode(encoder *e, const mr_block *b, size_t row, mr_bytes *record, mr_status *st)
{
    if (e->format == MR_SHARDS_NPY)
        return mr_npy_encode(e->npy, b, row, record, st);
    if (e->format == MR_SHARDS_TFRECORD)
        return mr_element_encode(e->example, b, row, record, st);
    e->size = 0;
    mr_code rc = mr_json_element(e->line, e->spec, b, row, e->opts, st);
    bool printed = fflush(e->line) == 0 && !ferror(e->line);
    if (rc == MR_OK && !printed)
        rc = mr_fail(st, MR_RESOURCE_EXHAUSTED, "out of memory for a line");
    *record = (mr_bytes){e->text, rc == MR_OK ? e->size : 0};
    return rc;
}

static mr_code write_row(encoder *e, const mr_block *b, size_t row, mr_shard_writer *w,
                         mr_status *st)
{
    mr_bytes record;
    mr_code rc = is_of_rows(e->format) ? mr_shard_writer_append_row(w, b, row, st)
                                       : encode(e, b, row, &record, st);
    if (rc != MR_OK)
        mr_status_at(st, NULL, -1, mr_shard_writer_records(w));
    else if (!is_of_rows(e->format))
        rc = mr_shard_writer_append(w, record.data, record.size, st);
    return rc;
}

mr_code mr_write_elements_check(const mr_dataset *ds, mr_shard_format format, mr_status *st)
{
    encoder e = {.format = format, .spec = mr_dataset_spec(ds)};
    MR_TRY(mr_dataset_check(ds, st));
    mr_code rc = encoder_open(&e, st);
    encoder_close(&e);
    return rc;
}

mr_code mr_write_iterator(mr_iterator *it, mr_shard_writer *w, const mr_iterator_opts *opts,
                          mr_status *st)
{
    static const mr_iterator_opts defaults;
    encoder e = {.format = mr_shard_writer_format(w),
                 .spec = mr_iterator_spec(it),
                 .opts = opts ? opts : &defaults};
    mr_block b = MR_BLOCK_EMPTY;
    mr_code rc = encoder_open(&e, st);
    while (rc == MR_OK && (rc = mr_iterator_next(it, WANT, &b, st)) == MR_OK) {
        rc = begin(&e, &b, w, st);
        for (size_t i = 0; i < b.rows && rc == MR_OK; i++)
            rc = write_row(&e, &b, i, w, st);
    }
    if (rc == MR_END)
        rc = begin(&e, NULL, w, st);
    mr_block_reset(&b);
    encoder_close(&e);
    return rc;
}

mr_code mr_write_elements(mr_dataset *ds, mr_shard_writer *w, const mr_iterator_opts *opts,
                          mr_status *st)
{
    mr_iterator *it = NULL;
    mr_code rc = mr_iterator_open(&it, ds, opts, st);
    if (rc == MR_OK)
        rc = mr_write_iterator(it, w, opts, st);
    mr_iterator_close(it);
    return rc;
}
