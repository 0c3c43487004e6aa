/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/tfrecord/tfrecord_writer.h"

#include "pipeline/formats/codec_impl.h"
#include "pipeline/bytes.h"
#include "pipeline/crc32c.h"

struct mr_tfrecord_writer {
    mr_atomic_file *file;
    mr__codec *codec;
    mr_code failed; /* MR_OK, or the code of the first failure */
};

void mr_tfrecord_writer_abort(mr_tfrecord_writer *w)
{
    if (!w)
        return;
    mr_atomic_file_abort(w->file);
    mr__codec_close(w->codec);
    mr_free(w);
}

mr_code mr__tfrecord_writer_open(mr_tfrecord_writer **out, const char *path,
                                 const mr_tfrecord_writer_opts *opts, const mr__upload_opts *upload,
                                 mr_status *st)
{
    mr_compression c = opts ? opts->compression : MR_COMPRESSION_NONE;
    mr_tfrecord_writer *w = mr_calloc(1, sizeof *w);
    if (!w)
        return mr_fail_memory(st, sizeof *w, "a record writer");
    mr_atomic_file_opts how = {.sync = opts && opts->sync ? MR_SYNC_CONTENTS : MR_SYNC_NONE};
    mr_code rc = c != MR_COMPRESSION_NONE ? mr__codec_encode_open(&w->codec, c, st) : MR_OK;
    if (rc == MR_OK)
        rc = upload ? mr__atomic_file_open_upload(&w->file, path, upload, st)
                    : mr_atomic_file_open(&w->file, path, &how, st);
    if (rc == MR_OK)
        *out = w;
    else
        mr_tfrecord_writer_abort(w);
    return rc;
}

mr_code mr_tfrecord_writer_open(mr_tfrecord_writer **out, const char *path,
                                const mr_tfrecord_writer_opts *opts, mr_status *st)
{
    return mr__tfrecord_writer_open(out, path, opts, NULL, st);
}

/* Compresses; `last` ends the stream. */
static mr_code put_packed(mr_tfrecord_writer *w, const uint8_t *data, size_t n, bool last,
                          mr_status *st)
{
    mr__codec_io io = {.in = data, .n_in = n};
    mr_code rc = MR_OK;
    while (rc == MR_OK && (io.n_in || last)) {
        size_t room;
        io.out = mr__atomic_file_room(w->file, &room);
        io.n_out = room;
        rc = w->codec->class_->step(w->codec, &io, last, st);
        if (rc < MR_OK)
            mr_status_at(st, w->file->path, -1, -1);
        else
            MR_TRY(mr__atomic_file_wrote(w->file, room - io.n_out, st));
    }
    return rc < MR_OK ? rc : MR_OK;
}

static mr_code put(mr_tfrecord_writer *w, const uint8_t *data, size_t n, mr_status *st)
{
    return w->failed = w->codec ? put_packed(w, data, n, false, st)
                                : mr_atomic_file_put(w->file, data, n, st);
}

static mr_code given_up(const mr_tfrecord_writer *w, mr_status *st)
{
    return mr_fail(st, w->failed, "the file %s was abandoned after an earlier failure",
                   w->file->path);
}

mr_code mr_tfrecord_writer_append(mr_tfrecord_writer *w, const void *data, size_t n, mr_status *st)
{
    uint8_t head[12], tail[4];
    if (w->failed != MR_OK)
        return given_up(w, st);
    mr__store_le(head, n, 8);
    mr__store_le(head + 8, mr_crc32c_mask(mr_crc32c(head, 8)), 4);
    mr__store_le(tail, mr_crc32c_mask(mr_crc32c(data, n)), 4);
    MR_TRY(put(w, head, sizeof head, st));
    MR_TRY(put(w, n ? data : head, n, st));
    return put(w, tail, sizeof tail, st);
}

mr_code mr__tfrecord_writer_put(mr_tfrecord_writer *w, const void *data, size_t n, mr_status *st)
{
    if (w->failed != MR_OK)
        return given_up(w, st);
    return n ? put(w, data, n, st) : MR_OK;
}

mr_code mr__tfrecord_writer_replace_head(mr_tfrecord_writer *w, const void *data, size_t n,
                                         mr_status *st)
{
    if (w->failed != MR_OK)
        return given_up(w, st);
    w->failed = mr__atomic_file_rewind(w->file, st);
    return w->failed == MR_OK ? put(w, data, n, st) : w->failed;
}

mr_code mr__tfrecord_writer_finish(mr_tfrecord_writer *w, mr_status *st)
{
    if (w->failed != MR_OK)
        return given_up(w, st);
    if (w->codec)
        w->failed = put_packed(w, (const uint8_t *)"", 0, true, st);
    if (w->failed == MR_OK)
        w->failed = mr__atomic_file_finish(w->file, st);
    return w->failed;
}

mr_atomic_file *mr__tfrecord_writer_file(mr_tfrecord_writer *w)
{
    return w->file;
}

mr_code mr_tfrecord_writer_close(mr_tfrecord_writer *w, mr_status *st)
{
    if (!w)
        return MR_OK;
    mr_code rc = mr__tfrecord_writer_finish(w, st);
    rc = mr_atomic_file_close(w->file, rc, st);
    w->file = NULL;
    mr_tfrecord_writer_abort(w);
    return rc;
}
