/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TESTS_RECORD_FILES_H
#define MR_TESTS_RECORD_FILES_H
/* Files for tests of readers, and what comes out of them as one text. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "pipeline/formats/tfrecord/tfrecord.h"
#include "tests/harness.h"

typedef struct byte_string {
    uint8_t *data;
    size_t n, room;
} byte_string;

/* Memory that lives as long as its test's process: reachable, so that a leak checker is content. */
static inline void *keep(size_t n)
{
    static void **last;
    void **p = malloc(sizeof *p + n);
    mr_check(p != NULL);
    *p = last;
    last = p;
    return p + 1;
}

static inline void put(byte_string *b, const void *data, size_t n)
{
    mr_check(n < SIZE_MAX / 4);
    if (b->n + n + 1 > b->room) {
        uint8_t *old = b->data;
        b->room = 2 * (b->n + n + 1);
        b->data = keep(b->room);
        if (b->n)
            memcpy(b->data, old, b->n);
    }
    if (n)
        memcpy(b->data + b->n, data, n);
    b->n += n;
}

static inline void write_file(const char *path, const void *data, size_t n)
{
    FILE *f = fopen(path, "wb");
    mr_check(f != NULL);
    if (n)
        mr_eq_u64(fwrite(data, 1, n, f), n);
    fclose(f);
}

static inline byte_string read_file(const char *path)
{
    byte_string b = {0};
    char part[4096];
    size_t n;
    FILE *f = fopen(path, "rb");
    mr_check(f != NULL);
    while ((n = fread(part, 1, sizeof part, f)) > 0)
        put(&b, part, n);
    fclose(f);
    return b;
}

/* data as one stream of window bits 31 (gzip) or 15 (zlib). */
static inline byte_string deflated(const void *data, size_t n, int window_bits)
{
    z_stream z = {0};
    byte_string out = {keep(n + n / 2 + 200), 0, n + n / 2 + 200};
    deflateInit2(&z, 6, Z_DEFLATED, window_bits, 8, Z_DEFAULT_STRATEGY);
    z.next_in = (Bytef *)(uintptr_t)data;
    z.avail_in = (uInt)n;
    z.next_out = out.data;
    z.avail_out = (uInt)(n + n / 2 + 200);
    mr_eq_i64(deflate(&z, Z_FINISH), Z_STREAM_END);
    out.n = z.total_out;
    deflateEnd(&z);
    return out;
}

/* The bytes of a TFRecord file with these records, through the writer. */
static inline byte_string framed(const char *const *records, size_t n)
{
    mr_status st;
    mr_tfrecord_writer *w = NULL;
    const char *path = mr_test_path("framed");
    mr_ok(mr_tfrecord_writer_open(&w, path, NULL, &st), &st);
    for (size_t i = 0; i < n; i++)
        mr_ok(mr_tfrecord_writer_append(w, records[i], strlen(records[i]), &st), &st);
    mr_ok(mr_tfrecord_writer_close(w, &st), &st);
    return read_file(path);
}

/* Appends "row|" for each row of a. */
static inline void put_rows(byte_string *b, const mr_array *a)
{
    const mr_bytes *v = a->data;
    for (size_t i = 0; i < a->rows; i++) {
        put(b, v[i].data, v[i].size);
        put(b, "|", 1);
    }
    put(b, "", 0);
    b->data[b->n] = '\0';
}

/* All records of a file as "a|b|c|", then the code that ended it. */
static inline const char *all_records(const char *path, mr_compression c, size_t want, mr_code *end,
                                      mr_status *st)
{
    static byte_string b;
    mr_reader *r = NULL;
    mr_array a = {0};
    b.n = 0;
    put(&b, "", 0);
    b.data[0] = '\0';
    mr_status_init(st);
    *end = mr_reader_open(&r, &mr_format_tfrecord, path, &(mr_file_opts){.compression = c}, st);
    while (*end == MR_OK && (*end = mr_reader_read(r, want, 1 << 18, &a, st)) == MR_OK) {
        mr_check(a.rows >= 1 && a.rows <= want);
        put_rows(&b, &a);
        mr_array_reset(&a);
    }
    if (r && *end < 0) {
        mr_array none = {0};
        mr_eq_i64(mr_reader_read(r, want, 1 << 18, &none, NULL), MR_END);
    }
    mr_reader_close(r);
    return (const char *)b.data;
}
#endif
