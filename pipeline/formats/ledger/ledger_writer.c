/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/ledger/job_ledger_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/file.h>

#include "pipeline/bytes.h"
#include "pipeline/crc32c.h"
#include "pipeline/formats/ledger/ledger_format.h"
#include "pipeline/formats/ledger/ledger_names.h"
#include "pipeline/formats/compression_libraries.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/system/retry.h"
#include "pipeline/varint.h"

enum { LEVEL = 3 };

struct mr_ledger {
    int fd; /* -1: there is no file, only names are kept */
    bool steps;
    char *path;
    pthread_mutex_t lock; /* guards the rest */
    mr__ledger_names names;
    mr_identity last;
    unsigned char *text; /* room for MR__LEDGER_TEXT bytes */
    unsigned char *chunk;
    size_t n, chunk_room;
    ZSTD_CCtx *zstd;
    mr_status error; /* sticky, if its code is not MR_OK */
};

static mr_code write_all(mr_ledger *l, const unsigned char *p, size_t n)
{
    return mr__write_all(l->fd, p, n) == 0
               ? MR_OK
               : mr_fail_errno(&l->error, errno, "%s: cannot write the ledger", l->path);
}

/* Writes the text so far as a chunk; no text: the end. */
static mr_code write_chunk(mr_ledger *l)
{
    size_t size = 0;
    if (l->n) {
        size = mr__zstd.ZSTD_compressCCtx(l->zstd, l->chunk + MR__LEDGER_CHUNK,
                                          l->chunk_room - MR__LEDGER_CHUNK, l->text, l->n, LEVEL);
        if (mr__zstd.ZSTD_isError(size))
            return mr_fail_memory(&l->error, l->n, "the compression of a ledger");
    }
    mr__store_le(l->chunk, size, 4);
    mr__store_le(l->chunk + 4, l->n, 4);
    uint32_t crc = mr_crc32c_extend(mr_crc32c(l->chunk, 8), l->chunk + MR__LEDGER_CHUNK, size);
    mr__store_le(l->chunk + 8, mr_crc32c_mask(crc), 4);
    l->n = 0;
    return write_all(l, l->chunk, MR__LEDGER_CHUNK + size);
}

static mr_code put_bytes(mr_ledger *l, const void *data, size_t n)
{
    const unsigned char *p = data;
    while (n) {
        size_t k = MR__LEDGER_TEXT - l->n < n ? MR__LEDGER_TEXT - l->n : n;
        memcpy(l->text + l->n, p, k);
        l->n += k;
        p += k;
        n -= k;
        if (l->n == MR__LEDGER_TEXT)
            MR_TRY(write_chunk(l));
    }
    return MR_OK;
}

static mr_code put_number(mr_ledger *l, uint64_t v)
{
    uint8_t b[MR__VARINT_MOST];
    return put_bytes(l, b, (size_t)(mr__varint_put(b, v) - b));
}

static mr_code put_difference(mr_ledger *l, uint64_t v, uint64_t before)
{
    return put_number(l, mr__zigzag((int64_t)(v - before)));
}

static mr_code put_record(mr_ledger *l, const mr_identity *id)
{
    MR_TRY(put_difference(l, id->source, l->last.source));
    MR_TRY(put_difference(l, id->file, l->last.file));
    MR_TRY(put_difference(l, id->ordinal, l->last.ordinal));
    MR_TRY(put_difference(l, id->epoch, l->last.epoch));
    l->last = *id;
    return MR_OK;
}

static mr_code put_entry(mr_ledger *l, const mr_identity *ids, size_t n)
{
    MR_TRY(put_number(l, n + 1));
    for (size_t i = 0; i < n; i++)
        MR_TRY(put_record(l, &ids[i]));
    return MR_OK;
}

static mr_code put_stored_name(mr_ledger *l, const mr_identity *of, const char *name, size_t size)
{
    const mr__ledger_file *f;
    mr_code rc = mr__ledger_names_add(&l->names, of->source, of->file, name, size, &f, &l->error);
    if (rc != MR_OK || l->fd < 0)
        return rc;
    rc = put_number(l, 0);
    if (rc == MR_OK)
        rc = put_number(l, of->source);
    if (rc == MR_OK)
        rc = put_number(l, of->file);
    if (rc == MR_OK)
        rc = put_number(l, size);
    return rc == MR_OK ? put_bytes(l, name, size) : rc;
}

static mr_code put_name(mr_ledger *l, const mr_identity *of, const char *name)
{
    char *stored = mr_strndup(name, strnlen(name, MR__LEDGER_NAME));
    if (!stored)
        return mr_fail_memory(&l->error, strlen(name), "a name");
    mr_text_drop_secrets(stored);
    mr_code rc = put_stored_name(l, of, stored, strlen(stored));
    mr_free(stored);
    return rc;
}

/* Requires the lock. */
static mr_code result(const mr_ledger *l, mr_status *st)
{
    if (l->error.code != MR_OK && st)
        *st = l->error;
    return l->error.code;
}

static void release(mr_ledger *l)
{
    if (l->fd >= 0)
        mr__sys->close(l->fd);
    mr__ledger_names_reset(&l->names);
    if (l->zstd)
        mr__zstd.ZSTD_freeCCtx(l->zstd);
    pthread_mutex_destroy(&l->lock);
    mr_free(l->path);
    mr_free(l->text);
    mr_free(l->chunk);
    mr_free(l);
}

mr_code mr__ledger_lock(const char *path, int fd, int kind, mr_status *st)
{
    int rc;
    MR__RETRY(rc, mr__sys->flock(fd, kind | LOCK_NB));
    /* Some file systems have no locks. */
    return rc == 0 || errno != EWOULDBLOCK
               ? MR_OK
               : mr_fail(st, MR_UNAVAILABLE,
                         "%s: another run is writing this ledger; end it, or name another file",
                         path);
}

static mr_code begin(mr_ledger *l)
{
    unsigned char header[MR__LEDGER_HEADER] = {[8] = MR__LEDGER_VERSION, [9] = l->steps};
    memcpy(header, MR__LEDGER_MAGIC, 8);
    struct stat is;
    l->fd = mr__sys->open(l->path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (l->fd < 0 || mr__sys->fstat(l->fd, &is) != 0)
        return mr_fail_errno(&l->error, errno, "%s: cannot create the ledger", l->path);
    if (S_ISREG(is.st_mode)) {
        MR_TRY(mr__ledger_lock(l->path, l->fd, LOCK_EX, &l->error));
        if (mr__sys->ftruncate(l->fd, 0) != 0)
            return mr_fail_errno(&l->error, errno, "%s: cannot replace the ledger", l->path);
    }
    return write_all(l, header, sizeof header);
}

static mr_code new_ledger(bool steps, mr_ledger **out, mr_status *st)
{
    mr_ledger *l = mr_calloc(1, sizeof *l);
    if (!l)
        return mr_fail_memory(st, sizeof *l, "a ledger");
    l->fd = -1;
    l->steps = steps;
    l->last.ordinal = UINT64_MAX;
    mr_status_init(&l->error);
    pthread_mutex_init(&l->lock, NULL);
    *out = l;
    return MR_OK;
}

MR_API mr_code mr__ledger_of_names(mr_ledger **out, mr_status *st)
{
    return new_ledger(true, out, st);
}

mr_code mr_ledger_create(const char *path, bool steps, mr_ledger **out, mr_status *st)
{
    mr_ledger *l;
    MR_TRY(mr__zstd_need(st));
    MR_TRY(new_ledger(steps, &l, st));
    l->chunk_room = MR__LEDGER_CHUNK + mr__zstd.ZSTD_compressBound(MR__LEDGER_TEXT);
    l->path = mr_memdup(path, strlen(path) + 1);
    l->text = mr_malloc(MR__LEDGER_TEXT);
    l->chunk = mr_malloc(l->chunk_room);
    l->zstd = mr__zstd.ZSTD_createCCtx();
    mr_code rc = MR_OK;
    if (!l->path || !l->text || !l->chunk || !l->zstd)
        rc = mr_fail_memory(&l->error, l->chunk_room, "a ledger");
    else
        rc = begin(l);
    if (rc == MR_OK) {
        *out = l;
        return MR_OK;
    }
    (void)result(l, st);
    release(l);
    return rc;
}

bool mr_ledger_takes_steps(const mr_ledger *l)
{
    return l->steps;
}

mr_code mr_ledger_add(mr_ledger *l, const mr_identity *ids, size_t n, mr_status *st)
{
    if (n > MR__LEDGER_RECORDS)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "an entry of a ledger has at most %d records, not %zu", MR__LEDGER_RECORDS,
                       n);
    pthread_mutex_lock(&l->lock);
    if (l->error.code == MR_OK && l->fd >= 0)
        (void)put_entry(l, ids, n);
    mr_code rc = result(l, st);
    pthread_mutex_unlock(&l->lock);
    return rc;
}

mr_code mr_ledger_name(mr_ledger *l, const mr_identity *of, const char *name, mr_status *st)
{
    pthread_mutex_lock(&l->lock);
    if (l->error.code == MR_OK && !mr__ledger_names_find(&l->names, of->source, of->file))
        (void)put_name(l, of, name);
    mr_code rc = result(l, st);
    pthread_mutex_unlock(&l->lock);
    return rc;
}

const char *mr_ledger_name_set(mr_ledger *l, const mr_identity *of)
{
    pthread_mutex_lock(&l->lock);
    const char *name = mr__ledger_names_find(&l->names, of->source, of->file);
    pthread_mutex_unlock(&l->lock);
    return name;
}

MR_API mr_code mr__ledger_sync(mr_ledger *l, mr_status *st)
{
    pthread_mutex_lock(&l->lock);
    if (l->error.code == MR_OK && l->n)
        (void)write_chunk(l);
    if (l->error.code == MR_OK && mr__fsync_again(l->fd) != 0 && errno != EINVAL && errno != EROFS)
        (void)mr_fail_errno(&l->error, errno, "%s: cannot write the ledger", l->path);
    mr_code rc = result(l, st);
    pthread_mutex_unlock(&l->lock);
    return rc;
}

mr_code mr_ledger_close(mr_ledger *l, mr_status *st)
{
    if (!l)
        return MR_OK;
    if (l->error.code == MR_OK && l->n)
        (void)write_chunk(l);
    if (l->error.code == MR_OK && l->fd >= 0)
        (void)write_chunk(l);
    mr_code rc = result(l, st);
    release(l);
    return rc;
}
