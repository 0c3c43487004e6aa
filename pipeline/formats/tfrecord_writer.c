/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/tfrecord.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "pipeline/files/system.h"
#include "pipeline/formats/codec.h"
#include "pipeline/formats/crc32c.h"

/* Files written in pieces of this size are read faster while still cached: the write size sets the
 * size of the page cache's folios. */
#define WRITE_BYTES ((size_t)1 << 20)

struct mr_tfrecord_writer {
    int fd;
    char *path, *temporary;
    bool sync, created;
    mr_buffer *buffer; /* WRITE_BYTES of what goes to the file next */
    size_t used;
    mr__codec *codec;
    mr_code failed; /* MR_OK, or the code of the first failure */
};

static mr_code fail_at(mr_tfrecord_writer *w, mr_code rc, mr_status *st)
{
    mr_status_at(st, w->path, -1, -1);
    w->failed = rc;
    return rc;
}

/* A name in the same directory that no other writer has. */
static char *temporary_name(const char *path)
{
    static atomic_uint counter;
    char tail[64];
    int n = snprintf(tail, sizeof tail, ".%ld-%u.partial", (long)getpid(),
                     atomic_fetch_add(&counter, 1));
    size_t n_path = strlen(path);
    char *name = mr_malloc(n_path + (size_t)n + 1);
    if (name) {
        memcpy(name, path, n_path);
        memcpy(name + n_path, tail, (size_t)n + 1);
    }
    return name;
}

void mr_tfrecord_writer_abort(mr_tfrecord_writer *w)
{
    if (!w)
        return;
    if (w->fd >= 0)
        mr__sys->close(w->fd);
    if (w->created)
        mr__sys->unlink(w->temporary);
    mr__codec_close(w->codec);
    mr_buffer_unref(w->buffer);
    mr_free(w->path);
    mr_free(w->temporary);
    mr_free(w);
}

mr_code mr_tfrecord_writer_open(mr_tfrecord_writer **out, const char *path,
                                const mr_tfrecord_writer_opts *opts, mr_status *st)
{
    mr_compression c = opts ? opts->compression : MR_COMPRESSION_NONE;
    mr_tfrecord_writer *w = mr_calloc(1, sizeof *w);
    if (!w)
        return mr_fail_memory(st, sizeof *w, "a record writer");
    w->fd = -1;
    w->sync = opts && opts->sync;
    w->path = mr_strdup(path);
    w->temporary = temporary_name(path);
    mr_code rc = w->path && w->temporary ? mr_buffer_alloc(&w->buffer, WRITE_BYTES, st)
                                         : mr_fail_memory(st, strlen(path), "a file name");
    if (rc == MR_OK && c != MR_COMPRESSION_NONE)
        rc = mr__codec_encode_open(&w->codec, c, st);
    if (rc == MR_OK) {
        do
            w->fd = mr__sys->open(w->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        while (w->fd < 0 && errno == EINTR);
        if (w->fd < 0) {
            rc = mr_fail_errno(st, errno, "cannot create the file");
            mr_status_at(st, path, -1, -1);
        }
    }
    if (rc != MR_OK) {
        mr_tfrecord_writer_abort(w);
        return rc;
    }
    w->created = true;
    *out = w;
    return MR_OK;
}

/* Writes the buffer out. On failure the file is removed. */
static mr_code flush(mr_tfrecord_writer *w, mr_status *st)
{
    const uint8_t *data = mr_buffer_data(w->buffer);
    for (size_t done = 0; done < w->used;) {
        ssize_t n = mr__sys->write(w->fd, data + done, w->used - done);
        if (n < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (n <= 0) {
            mr_code rc =
                mr_fail_errno(st, n < 0 ? errno : ENOSPC, "cannot write; the file is removed");
            mr__sys->unlink(w->temporary);
            w->created = false;
            return fail_at(w, rc, st);
        }
        done += (size_t)n;
    }
    w->used = 0;
    return MR_OK;
}

static mr_code put_plain(mr_tfrecord_writer *w, const uint8_t *data, size_t n, mr_status *st)
{
    while (n) {
        size_t room = WRITE_BYTES - w->used, part = n < room ? n : room;
        memcpy((uint8_t *)mr_buffer_data(w->buffer) + w->used, data, part);
        w->used += part;
        data += part;
        n -= part;
        if (w->used == WRITE_BYTES)
            MR_TRY(flush(w, st));
    }
    return MR_OK;
}

/* Compresses; `last` ends the stream. */
static mr_code put_packed(mr_tfrecord_writer *w, const uint8_t *data, size_t n, bool last,
                          mr_status *st)
{
    mr__codec_io io = {.in = data, .n_in = n};
    mr_code rc = MR_OK;
    while (rc == MR_OK && (io.n_in || last)) {
        io.out = (uint8_t *)mr_buffer_data(w->buffer) + w->used;
        io.n_out = WRITE_BYTES - w->used;
        rc = w->codec->class_->step(w->codec, &io, last, st);
        w->used = WRITE_BYTES - io.n_out;
        if (rc >= MR_OK && w->used == WRITE_BYTES)
            MR_TRY(flush(w, st));
    }
    return rc < MR_OK ? fail_at(w, rc, st) : MR_OK;
}

static mr_code put(mr_tfrecord_writer *w, const uint8_t *data, size_t n, mr_status *st)
{
    return w->codec ? put_packed(w, data, n, false, st) : put_plain(w, data, n, st);
}

static void store_little(uint8_t *p, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        p[i] = (uint8_t)(v >> 8 * i);
}

mr_code mr_tfrecord_writer_append(mr_tfrecord_writer *w, const void *data, size_t n, mr_status *st)
{
    uint8_t head[12], tail[4];
    if (w->failed != MR_OK)
        return mr_fail(st, w->failed, "the file %s was given up after an earlier failure", w->path);
    store_little(head, n, 8);
    store_little(head + 8, mr_crc32c_mask(mr_crc32c(head, 8)), 4);
    store_little(tail, mr_crc32c_mask(mr_crc32c(data, n)), 4);
    MR_TRY(put(w, head, sizeof head, st));
    MR_TRY(put(w, n ? data : head, n, st));
    return put(w, tail, sizeof tail, st);
}

mr_code mr_tfrecord_writer_close(mr_tfrecord_writer *w, mr_status *st)
{
    if (!w)
        return MR_OK;
    mr_code rc = w->failed;
    if (rc != MR_OK)
        mr_fail(st, rc, "the file %s was given up after an earlier failure", w->path);
    if (rc == MR_OK && w->codec)
        rc = put_packed(w, (const uint8_t *)"", 0, true, st);
    if (rc == MR_OK)
        rc = flush(w, st);
    if (rc == MR_OK && w->sync && mr__sys->fsync(w->fd) != 0)
        rc = fail_at(w, mr_fail_errno(st, errno, "cannot write to the disk"), st);
    if (rc == MR_OK) {
        int fd = w->fd;
        w->fd = -1;
        if (mr__sys->close(fd) != 0 && errno != EINTR)
            rc = fail_at(w, mr_fail_errno(st, errno, "cannot close the file"), st);
    }
    if (rc == MR_OK && mr__sys->rename(w->temporary, w->path) != 0)
        rc = fail_at(w, mr_fail_errno(st, errno, "cannot give the file its name"), st);
    if (rc == MR_OK)
        w->created = false;
    mr_tfrecord_writer_abort(w);
    return rc;
}
