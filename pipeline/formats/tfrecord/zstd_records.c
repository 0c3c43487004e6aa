/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/tfrecord/zstd_records.h"

#include <inttypes.h>
#include <string.h>

#include "pipeline/files/whole_file.h"
#include "pipeline/formats/compression_libraries.h"
#include "pipeline/formats/shard_names.h"
#include "pipeline/formats/tfrecord/zstd_records_impl.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/system/fork.h"

/* A block of a frame that holds data has at least 4 bytes and expands to at most 128 KiB. */
enum { LEVEL = 3, BLOCK_LEAST = 4, BLOCK_MOST = 128 << 10 };
/* Sizes of a dictionary, and the minimum number of samples: fewer make no good dictionary. */
enum { LEAST = 1 << 10, MOST = 64 << 10, PART = 50, SAMPLES_LEAST = 16 };

struct mr__zstd_record_reader {
    ZSTD_DCtx *d;
    uint32_t dictionary;
};
struct mr__zstd_record_writer {
    ZSTD_CCtx *c;
    void *dictionary; /* prepared; NULL: none */
    void *frame;
    size_t capacity;
};

/* ---- reading a record ---- */

mr_code mr__zstd_record_reader_open(mr__zstd_record_reader **out, const void *dictionary, size_t n,
                                    mr_status *st)
{
    MR_TRY(mr__zstd_need(st));
    mr__zstd_record_reader *r = mr_calloc(1, sizeof *r);
    if (!r || !(r->d = mr__zstd.ZSTD_createDCtx_advanced(mr__zstd_memory()))) {
        mr_free(r);
        return mr_fail_memory(st, sizeof *r, "decompression");
    }
    /* zstd reports a damaged dictionary as out of memory too. */
    if (mr__is_zstd_dictionary(dictionary, n) &&
        mr__zstd.ZDICT_isError(mr__zstd.ZDICT_getDictHeaderSize(dictionary, n))) {
        mr__zstd_record_reader_close(r);
        return mr_fail(st, MR_INVALID_ARGUMENT, "the zstd dictionary is damaged");
    }
    if (n && mr__zstd.ZSTD_isError(mr__zstd.ZSTD_DCtx_loadDictionary(r->d, dictionary, n))) {
        mr__zstd_record_reader_close(r);
        return mr_fail_memory(st, n, "a dictionary");
    }
    r->dictionary = n ? mr__zstd.ZSTD_getDictID_fromDict(dictionary, n) : 0;
    *out = r;
    return MR_OK;
}

void mr__zstd_record_reader_close(mr__zstd_record_reader *r)
{
    if (!r)
        return;
    mr__zstd.ZSTD_freeDCtx(r->d);
    mr_free(r);
}

uint32_t mr__zstd_record_reader_dictionary(const mr__zstd_record_reader *r)
{
    return r->dictionary;
}

uint32_t mr__zstd_record_dictionary(const mr_bytes *frame)
{
    return frame->size ? mr__zstd.ZSTD_getDictID_fromFrame(frame->data, frame->size) : 0;
}

mr_code mr__zstd_record_room(const mr_bytes *frame, size_t *room, mr_status *st)
{
    static const uint8_t magic[] = {0x28, 0xb5, 0x2f, 0xfd};
    const void *p = frame->data;
    size_t n = frame->size;
    if (n < sizeof magic || memcmp(p, magic, sizeof magic) != 0)
        return mr_fail(st, MR_DATA_LOSS,
                       "the record is not a zstd frame (is record_compression the right one?)");
    MR_TRY(mr__zstd_need(st));
    size_t whole = mr__zstd.ZSTD_findFrameCompressedSize(p, n);
    if (mr__zstd.ZSTD_isError(whole))
        return mr_fail(st, MR_DATA_LOSS, "corrupted zstd frame: %s",
                       mr__zstd.ZSTD_getErrorName(whole));
    if (whole != n)
        return mr_fail(st, MR_DATA_LOSS,
                       "corrupted zstd frame: %zu bytes follow it, but a record is one frame",
                       n - whole);
    unsigned long long says = mr__zstd.ZSTD_getFrameContentSize(p, n),
                       can = (unsigned long long)(n / BLOCK_LEAST + 1) * BLOCK_MOST;
    if (says == ZSTD_CONTENTSIZE_UNKNOWN)
        says = mr__zstd.ZSTD_decompressBound(p, n); /* sum over its blocks */
    else if (says > can)
        return mr_fail(st, MR_DATA_LOSS,
                       "corrupted zstd frame: %zu bytes cannot decompress to %llu", n, says);
    if (says > MR__ZSTD_RECORD_MOST)
        return mr_fail(st, MR_RESOURCE_EXHAUSTED,
                       "the record exceeds %d MiB when decompressed, the maximum size of a record",
                       MR__ZSTD_RECORD_MOST >> 20);
    *room = (size_t)says;
    return MR_OK;
}

mr_code mr__zstd_record_read(mr__zstd_record_reader *r, const mr_bytes *frame, void *to,
                             size_t room, size_t *n, mr_status *st)
{
    size_t rc = mr__zstd.ZSTD_decompressDCtx(r->d, to, room, frame->data, frame->size);
    if (mr__zstd.ZSTD_isError(rc))
        return mr__zstd.ZSTD_getErrorCode(rc) == ZSTD_error_memory_allocation
                   ? mr_fail_memory(st, room, "decompression")
                   : mr_fail(st, MR_DATA_LOSS, "corrupted zstd frame: %s",
                             mr__zstd.ZSTD_getErrorName(rc));
    *n = rc;
    return MR_OK;
}

/* ---- writing records ---- */

/* Prepared in memory allocated here: some versions crash if their own allocation fails. */
static mr_code prepare_dictionary(mr__zstd_record_writer *w, const void *dictionary, size_t n,
                                  mr_status *st)
{
    const ZSTD_compressionParameters how = mr__zstd.ZSTD_getCParams(LEVEL, 0, n);
    size_t size = mr__zstd.ZSTD_estimateCDictSize_advanced(n, how, ZSTD_dlm_byCopy);
    w->dictionary = mr_malloc(size);
    if (!w->dictionary)
        return mr_fail_memory(st, size, "a dictionary");
    const ZSTD_CDict *d = mr__zstd.ZSTD_initStaticCDict(w->dictionary, size, dictionary, n,
                                                        ZSTD_dlm_byCopy, ZSTD_dct_auto, how);
    if (!d || mr__zstd.ZSTD_isError(mr__zstd.ZSTD_CCtx_refCDict(w->c, d)))
        return mr_fail(st, MR_INVALID_ARGUMENT, "the zstd dictionary is damaged");
    return MR_OK;
}

mr_code mr__zstd_record_writer_open(mr__zstd_record_writer **out, const void *dictionary, size_t n,
                                    mr_status *st)
{
    MR_TRY(mr__zstd_need(st));
    mr__zstd_record_writer *w = mr_calloc(1, sizeof *w);
    if (w)
        w->c = mr__zstd.ZSTD_createCCtx_advanced(mr__zstd_memory());
    mr_code rc = MR_OK;
    if (!w || !w->c ||
        mr__zstd.ZSTD_isError(
            mr__zstd.ZSTD_CCtx_setParameter(w->c, ZSTD_c_compressionLevel, LEVEL)))
        rc = mr_fail_memory(st, sizeof *w, "compression");
    if (rc == MR_OK && n)
        rc = prepare_dictionary(w, dictionary, n, st);
    if (rc != MR_OK) {
        mr__zstd_record_writer_close(w);
        return rc;
    }
    *out = w;
    return MR_OK;
}

void mr__zstd_record_writer_close(mr__zstd_record_writer *w)
{
    if (!w)
        return;
    mr__zstd.ZSTD_freeCCtx(w->c);
    mr_free(w->dictionary);
    mr_free(w->frame);
    mr_free(w);
}

mr_code mr__zstd_record_write(mr__zstd_record_writer *w, const void *data, size_t size,
                              mr_bytes *frame, mr_status *st)
{
    if (size > MR__ZSTD_RECORD_MOST)
        return mr_fail(
            st, MR_RESOURCE_EXHAUSTED,
            "a record of %zu bytes exceeds %d MiB, the maximum size of a compressed record", size,
            MR__ZSTD_RECORD_MOST >> 20);
    size_t room = mr__zstd.ZSTD_compressBound(size);
    MR_TRY(mr_grow(&w->frame, &w->capacity, room, 1, (size_t)2 * MR__ZSTD_RECORD_MOST,
                   "a compressed record", st));
    size_t rc = mr__zstd.ZSTD_compress2(w->c, w->frame, w->capacity, size ? data : "", size);
    if (mr__zstd.ZSTD_isError(rc))
        return mr__zstd.ZSTD_getErrorCode(rc) == ZSTD_error_memory_allocation
                   ? mr_fail_memory(st, room, "compression")
                   : mr_fail(st, MR_INTERNAL, "zstd failed to compress: %s",
                             mr__zstd.ZSTD_getErrorName(rc));
    *frame = (mr_bytes){w->frame, rc};
    return MR_OK;
}

/* Compressed size of the samples. */
static mr_code size_with(const void *dictionary, size_t size, const char *samples,
                         const size_t *sizes, size_t n, size_t *out, mr_status *st)
{
    mr__zstd_record_writer *w = NULL;
    mr_bytes frame;
    mr_code rc = mr__zstd_record_writer_open(&w, dictionary, size, st);
    *out = size;
    for (size_t i = 0; i < n && rc == MR_OK; samples += sizes[i++]) {
        rc = mr__zstd_record_write(w, samples, sizes[i], &frame, st);
        *out += rc == MR_OK ? frame.size : 0;
    }
    mr__zstd_record_writer_close(w);
    return rc;
}

mr_code mr__zstd_dictionary_train(const void *samples, const size_t *sizes, size_t n, void **out,
                                  size_t *size, mr_status *st)
{
    /* The trainer of some versions keeps a context in a static variable. */
    static mr__lock one_at_a_time = MR__LOCK_FREE;
    size_t total = 0, with = 0, without = 0;
    *out = NULL;
    *size = 0;
    for (size_t i = 0; i < n; i++)
        total += sizes[i];
    size_t capacity = total / PART > MOST ? MOST : total / PART;
    if (capacity < LEAST)
        capacity = LEAST;
    if (n < SAMPLES_LEAST || total < 4 * capacity || n > UINT32_MAX)
        return MR_OK;
    MR_TRY(mr__zstd_need(st));
    void *made = mr_malloc(capacity);
    if (!made)
        return mr_fail_memory(st, capacity, "a dictionary");
    mr__lock_take(&one_at_a_time);
    size_t got = mr__zstd.ZDICT_trainFromBuffer(made, capacity, samples, sizes, (unsigned)n);
    mr__lock_release(&one_at_a_time);
    mr_code rc = MR_OK;
    if (!mr__zstd.ZDICT_isError(got)) { /* an error: the samples have nothing in common */
        rc = size_with(NULL, 0, samples, sizes, n, &without, st);
        if (rc == MR_OK)
            rc = size_with(made, got, samples, sizes, n, &with, st);
    }
    if (rc != MR_OK || mr__zstd.ZDICT_isError(got) || with >= without) {
        mr_free(made);
        return rc;
    }
    *out = made;
    *size = got;
    return MR_OK;
}

bool mr__is_zstd_dictionary(const void *head, size_t n)
{
    static const uint8_t magic[] = {0x37, 0xa4, 0x30, 0xec};
    return n >= sizeof magic && memcmp(head, magic, sizeof magic) == 0;
}

enum { MOST_DICTIONARY = 1 << 28 };

struct mr_zstd_records {
    bool named; /* the caller named the dictionary, which then never changes */
    mr_cancel *cancel;
    mr__zstd_record_reader *reader; /* NULL: not opened yet */
    char *loaded;                   /* path of its dictionary; NULL: none */
};

/* ---- the dictionary of a file ---- */

/* Replaces the reader of f by one with the dictionary at path (taken; NULL: none). */
static mr_code load(mr_zstd_records *f, char *path, mr_status *st)
{
    mr_buffer *bytes = NULL;
    size_t n = 0;
    mr__zstd_record_reader *r = NULL;
    mr_file_read_opts opts = {.most = MOST_DICTIONARY, .cancel = f->cancel};
    mr_code rc = path ? mr__file_read_named(path, &opts, &bytes, &n, st) : MR_OK;
    if (rc == MR_OK && path && n == 0)
        rc = mr_fail(st, MR_INVALID_ARGUMENT, "the dictionary %s is empty", path);
    if (rc == MR_OK) {
        rc = mr__zstd_record_reader_open(&r, bytes ? mr_buffer_data(bytes) : NULL, n, st);
        if (rc != MR_OK && path)
            mr_status_prefix(st, "%s", path);
    }
    mr_buffer_unref(bytes);
    if (rc != MR_OK) {
        mr_free(path);
        return rc;
    }
    mr__zstd_record_reader_close(f->reader);
    mr_free(f->loaded);
    f->reader = r;
    f->loaded = path;
    return MR_OK;
}

/* Loads the dictionary next to the file `path`. */
static mr_code load_beside(mr_zstd_records *f, const char *path, uint32_t id, mr_status *st)
{
    static const char ending[] = ".dict";
    size_t n = mr__shard_prefix(path, strlen(path));
    if (n == 0)
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "the record was compressed with dictionary %" PRIu32
                       "; give its file: dictionary PREFIX.dict",
                       id);
    char *beside = mr_malloc(n + sizeof ending);
    if (!beside)
        return mr_fail_memory(st, n, "a file name");
    memcpy(beside, path, n);
    memcpy(beside + n, ending, sizeof ending);
    mr_code rc = load(f, beside, st);
    if (rc != MR_OK)
        mr_status_prefix(st, "the record was compressed with dictionary %" PRIu32, id);
    return rc;
}

/* Makes f->reader able to read frames of the file `path` with dictionary `id`. */
static mr_code prepare(mr_zstd_records *f, const char *path, uint32_t id, mr_status *st)
{
    if (!f->reader && !id)
        return load(f, NULL, st);
    if (!id || (f->reader && mr__zstd_record_reader_dictionary(f->reader) == id))
        return MR_OK;
    if (!f->named)
        MR_TRY(load_beside(f, path, id, st));
    uint32_t has = mr__zstd_record_reader_dictionary(f->reader);
    return has == id ? MR_OK
                     : mr_fail(st, MR_FAILED_PRECONDITION,
                               "the record was compressed with dictionary %" PRIu32
                               ", but %s is dictionary %" PRIu32,
                               id, f->loaded, has);
}

mr_code mr_zstd_records_open(mr_zstd_records **out, const char *dictionary, mr_cancel *cancel,
                             mr_status *st)
{
    mr_zstd_records *f = mr_calloc(1, sizeof *f);
    char *path = dictionary ? mr_strdup(dictionary) : NULL;
    mr_code rc = MR_OK;
    if (!f || (dictionary && !path)) {
        mr_free(path);
        mr_free(f);
        return mr_fail_memory(st, sizeof *f, "a reader of frames");
    }
    f->cancel = cancel;
    f->named = dictionary != NULL;
    if (path)
        rc = load(f, path, st);
    if (rc == MR_OK)
        *out = f;
    else
        mr_zstd_records_close(f);
    return rc;
}

void mr_zstd_records_close(mr_zstd_records *f)
{
    if (!f)
        return;
    mr__zstd_record_reader_close(f->reader);
    mr_free(f->loaded);
    mr_free(f);
}

/* ---- decompressing records ---- */

bool mr_is_zstd_record(const mr_bytes *record)
{
    static const unsigned char magic[] = {0x28, 0xb5, 0x2f, 0xfd};
    return record->size > sizeof magic && memcmp(record->data, magic, sizeof magic) == 0;
}

mr_code mr_zstd_records_read(mr_zstd_records *f, const char *path, const mr_bytes *frames, size_t n,
                             size_t most, mr_array *out, mr_status *st)
{
    size_t rows = 0, total = 0, room = 0, done = 0;
    mr_buffer *text = NULL;
    for (; rows < n && total < most; rows++, total += room)
        if (mr__zstd_record_room(&frames[rows], &room, rows ? NULL : st) != MR_OK)
            break;
    if (rows == 0) /* now with the message */
        return mr__zstd_record_room(&frames[0], &room, st);
    MR_TRY(mr_array_alloc(out, MR_STRING, 0, NULL, rows, st));
    mr_code rc = mr_buffer_alloc(&text, total, st);
    if (rc == MR_OK)
        rc = mr_buffer_hold(out->owner, text, st);
    char *to = text ? mr_buffer_data(text) : NULL;
    size_t left = total;
    for (; done < rows && rc == MR_OK; done++) {
        mr_status why;
        mr_bytes *v = &((mr_bytes *)out->data)[done];
        mr_code one = prepare(f, path, mr__zstd_record_dictionary(&frames[done]), &why);
        if (one == MR_OK)
            one = mr__zstd_record_read(f->reader, &frames[done], to, left, &v->size, &why);
        if (one != MR_OK && done > 0 && one != MR_CANCELLED)
            break; /* the next call reports it for its first frame */
        if (one != MR_OK && st)
            *st = why;
        rc = one;
        v->data = to;
        to += rc == MR_OK ? v->size : 0;
        left -= rc == MR_OK ? v->size : 0;
    }
    mr_buffer_unref(text);
    out->rows = done;
    if (rc != MR_OK)
        mr_array_reset(out);
    return rc;
}
