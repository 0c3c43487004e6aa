/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/tfrecord/record_frames.h"

#include <pthread.h>
#include <string.h>

#include "pipeline/formats/libzstd.h"
#include "pipeline/memory/alloc.h"

/* A block of a frame has at least 4 bytes, if it holds any data, of which it makes 128 KiB. */
enum { LEVEL = 3, BLOCK_LEAST = 4, BLOCK_MOST = 128 << 10 };
/* Of a dictionary. What is worth training of: fewer samples make no good one. */
enum { LEAST = 1 << 10, MOST = 64 << 10, PART = 50, SAMPLES_LEAST = 16 };

struct mr__frame_reader {
    ZSTD_DCtx *d;
    uint32_t dictionary;
};
struct mr__frame_writer {
    ZSTD_CCtx *c;
    void *dictionary; /* prepared; NULL: there is none */
    void *frame;
    size_t capacity;
};

/* ---- reading ---- */

mr_code mr__frame_reader_open(mr__frame_reader **out, const void *dictionary, size_t n,
                              mr_status *st)
{
    MR_TRY(mr__zstd_need(st));
    mr__frame_reader *r = mr_calloc(1, sizeof *r);
    if (!r || !(r->d = mr__zstd.ZSTD_createDCtx_advanced(mr__zstd_memory()))) {
        mr_free(r);
        return mr_fail_memory(st, sizeof *r, "decompression");
    }
    /* Loading says of one that is damaged too that there is no memory. */
    if (mr__is_dictionary(dictionary, n) &&
        mr__zstd.ZDICT_isError(mr__zstd.ZDICT_getDictHeaderSize(dictionary, n))) {
        mr__frame_reader_close(r);
        return mr_fail(st, MR_INVALID_ARGUMENT, "the zstd dictionary is damaged");
    }
    if (n && mr__zstd.ZSTD_isError(mr__zstd.ZSTD_DCtx_loadDictionary(r->d, dictionary, n))) {
        mr__frame_reader_close(r);
        return mr_fail_memory(st, n, "a dictionary");
    }
    r->dictionary = n ? mr__zstd.ZSTD_getDictID_fromDict(dictionary, n) : 0;
    *out = r;
    return MR_OK;
}

void mr__frame_reader_close(mr__frame_reader *r)
{
    if (!r)
        return;
    mr__zstd.ZSTD_freeDCtx(r->d);
    mr_free(r);
}

uint32_t mr__frame_reader_dictionary(const mr__frame_reader *r)
{
    return r->dictionary;
}

uint32_t mr__frame_dictionary(const mr_bytes *frame)
{
    return frame->size ? mr__zstd.ZSTD_getDictID_fromFrame(frame->data, frame->size) : 0;
}

mr_code mr__frame_room(const mr_bytes *frame, size_t *room, mr_status *st)
{
    static const uint8_t magic[] = {0x28, 0xb5, 0x2f, 0xfd};
    const void *p = frame->data;
    size_t n = frame->size;
    if (n < sizeof magic || memcmp(p, magic, sizeof magic) != 0)
        return mr_fail(st, MR_DATA_LOSS,
                       "the record is no zstd frame (is record_compression the right one?)");
    MR_TRY(mr__zstd_need(st));
    size_t whole = mr__zstd.ZSTD_findFrameCompressedSize(p, n);
    if (mr__zstd.ZSTD_isError(whole))
        return mr_fail(st, MR_DATA_LOSS, "corrupted zstd frame: %s",
                       mr__zstd.ZSTD_getErrorName(whole));
    if (whole != n)
        return mr_fail(st, MR_DATA_LOSS,
                       "corrupted zstd frame: %zu bytes follow it, and a record is one frame",
                       n - whole);
    unsigned long long says = mr__zstd.ZSTD_getFrameContentSize(p, n),
                       can = (unsigned long long)(n / BLOCK_LEAST + 1) * BLOCK_MOST;
    if (says == ZSTD_CONTENTSIZE_UNKNOWN)
        says = mr__zstd.ZSTD_decompressBound(p, n); /* of its blocks */
    else if (says > can)
        return mr_fail(st, MR_DATA_LOSS,
                       "corrupted zstd frame: %zu bytes cannot be %llu when unpacked", n, says);
    if (says > MR__FRAME_MOST)
        return mr_fail(st, MR_RESOURCE_EXHAUSTED,
                       "the record is over %d MiB when unpacked, the most a record may be",
                       MR__FRAME_MOST >> 20);
    *room = (size_t)says;
    return MR_OK;
}

mr_code mr__frame_read(mr__frame_reader *r, const mr_bytes *frame, void *to, size_t room, size_t *n,
                       mr_status *st)
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

/* ---- writing ---- */

/* In memory of our own: some versions crash where they get none for it. */
static mr_code prepare_dictionary(mr__frame_writer *w, const void *dictionary, size_t n,
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

mr_code mr__frame_writer_open(mr__frame_writer **out, const void *dictionary, size_t n,
                              mr_status *st)
{
    MR_TRY(mr__zstd_need(st));
    mr__frame_writer *w = mr_calloc(1, sizeof *w);
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
        mr__frame_writer_close(w);
        return rc;
    }
    *out = w;
    return MR_OK;
}

void mr__frame_writer_close(mr__frame_writer *w)
{
    if (!w)
        return;
    mr__zstd.ZSTD_freeCCtx(w->c);
    mr_free(w->dictionary);
    mr_free(w->frame);
    mr_free(w);
}

mr_code mr__frame_write(mr__frame_writer *w, const void *data, size_t size, mr_bytes *frame,
                        mr_status *st)
{
    if (size > MR__FRAME_MOST)
        return mr_fail(st, MR_RESOURCE_EXHAUSTED,
                       "a record of %zu bytes is over %d MiB, the most that is compressed by "
                       "itself",
                       size, MR__FRAME_MOST >> 20);
    size_t room = mr__zstd.ZSTD_compressBound(size);
    MR_TRY(mr_grow(&w->frame, &w->capacity, room, 1, (size_t)2 * MR__FRAME_MOST,
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

/* The bytes that the samples become. */
static mr_code size_with(const void *dictionary, size_t size, const char *samples,
                         const size_t *sizes, size_t n, size_t *out, mr_status *st)
{
    mr__frame_writer *w = NULL;
    mr_bytes frame;
    mr_code rc = mr__frame_writer_open(&w, dictionary, size, st);
    *out = size;
    for (size_t i = 0; i < n && rc == MR_OK; samples += sizes[i++]) {
        rc = mr__frame_write(w, samples, sizes[i], &frame, st);
        *out += rc == MR_OK ? frame.size : 0;
    }
    mr__frame_writer_close(w);
    return rc;
}

mr_code mr__frames_train(const void *samples, const size_t *sizes, size_t n, void **out,
                         size_t *size, mr_status *st)
{
    /* The trainer of some versions keeps a context in a static variable. */
    static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
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
    pthread_mutex_lock(&one_at_a_time);
    size_t got = mr__zstd.ZDICT_trainFromBuffer(made, capacity, samples, sizes, (unsigned)n);
    pthread_mutex_unlock(&one_at_a_time);
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

bool mr__is_dictionary(const void *head, size_t n)
{
    static const uint8_t magic[] = {0x37, 0xa4, 0x30, 0xec};
    return n >= sizeof magic && memcmp(head, magic, sizeof magic) == 0;
}
