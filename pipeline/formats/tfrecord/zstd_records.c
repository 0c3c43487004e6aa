/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/tfrecord/zstd_records.h"

#include <inttypes.h>
#include <string.h>

#include "pipeline/files/whole_file.h"
#include "pipeline/formats/shard_names.h"
#include "pipeline/formats/tfrecord/record_frames.h"

enum { MOST_DICTIONARY = 1 << 28 };

struct mr_frames {
    bool named; /* the dictionary was, and stays */
    mr_cancel *cancel;
    mr__frame_reader *reader; /* NULL: not opened yet */
    char *loaded;             /* path of its dictionary; NULL: it has none */
};

/* ---- dictionaries ---- */

/* A reader with the dictionary at path (taken over; NULL: with none) in the place of f's. */
static mr_code load(mr_frames *f, char *path, mr_status *st)
{
    mr_buffer *bytes = NULL;
    size_t n = 0;
    mr__frame_reader *r = NULL;
    mr_file_read_opts opts = {.most = MOST_DICTIONARY, .cancel = f->cancel};
    mr_code rc = path ? mr__file_read_named(path, &opts, &bytes, &n, st) : MR_OK;
    if (rc == MR_OK && path && n == 0)
        rc = mr_fail(st, MR_INVALID_ARGUMENT, "the dictionary %s is empty", path);
    if (rc == MR_OK) {
        rc = mr__frame_reader_open(&r, bytes ? mr_buffer_data(bytes) : NULL, n, st);
        if (rc != MR_OK && path)
            mr_status_prefix(st, "%s", path);
    }
    mr_buffer_unref(bytes);
    if (rc != MR_OK) {
        mr_free(path);
        return rc;
    }
    mr__frame_reader_close(f->reader);
    mr_free(f->loaded);
    f->reader = r;
    f->loaded = path;
    return MR_OK;
}

/* The reader with the dictionary beside the file `path`. */
static mr_code load_beside(mr_frames *f, const char *path, uint32_t id, mr_status *st)
{
    static const char ending[] = ".dict";
    size_t n = mr__shard_prefix(path, strlen(path));
    if (n == 0)
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "the record was compressed with dictionary %" PRIu32
                       "; say where that is: dictionary PREFIX.dict",
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

/* f->reader can read frames that name dictionary `id`, of the file `path`. */
static mr_code prepare(mr_frames *f, const char *path, uint32_t id, mr_status *st)
{
    if (!f->reader && !id)
        return load(f, NULL, st);
    if (!id || (f->reader && mr__frame_reader_dictionary(f->reader) == id))
        return MR_OK;
    if (!f->named)
        MR_TRY(load_beside(f, path, id, st));
    uint32_t has = mr__frame_reader_dictionary(f->reader);
    return has == id ? MR_OK
                     : mr_fail(st, MR_FAILED_PRECONDITION,
                               "the record was compressed with dictionary %" PRIu32
                               ", and %s is dictionary %" PRIu32,
                               id, f->loaded, has);
}

mr_code mr_frames_open(mr_frames **out, const char *dictionary, mr_cancel *cancel, mr_status *st)
{
    mr_frames *f = mr_calloc(1, sizeof *f);
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
        mr_frames_close(f);
    return rc;
}

void mr_frames_close(mr_frames *f)
{
    if (!f)
        return;
    mr__frame_reader_close(f->reader);
    mr_free(f->loaded);
    mr_free(f);
}

/* ---- unpacking ---- */

bool mr_is_frame(const mr_bytes *record)
{
    static const unsigned char magic[] = {0x28, 0xb5, 0x2f, 0xfd};
    return record->size > sizeof magic && memcmp(record->data, magic, sizeof magic) == 0;
}

mr_code mr_frames_read(mr_frames *f, const char *path, const mr_bytes *frames, size_t n,
                       size_t most, mr_array *out, mr_status *st)
{
    size_t rows = 0, total = 0, room = 0, done = 0;
    mr_buffer *text = NULL;
    for (; rows < n && total < most; rows++, total += room)
        if (mr__frame_room(&frames[rows], &room, rows ? NULL : st) != MR_OK)
            break;
    if (rows == 0) /* with the message */
        return mr__frame_room(&frames[0], &room, st);
    MR_TRY(mr_array_alloc(out, MR_STRING, 0, NULL, rows, st));
    mr_code rc = mr_buffer_alloc(&text, total, st);
    if (rc == MR_OK)
        rc = mr_buffer_hold(out->owner, text, st);
    char *to = text ? mr_buffer_data(text) : NULL;
    size_t left = total;
    for (; done < rows && rc == MR_OK; done++) {
        mr_status why;
        mr_bytes *v = &((mr_bytes *)out->data)[done];
        mr_code one = prepare(f, path, mr__frame_dictionary(&frames[done]), &why);
        if (one == MR_OK)
            one = mr__frame_read(f->reader, &frames[done], to, left, &v->size, &why);
        if (one != MR_OK && done > 0 && one != MR_CANCELLED)
            break; /* it comes again as the first */
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
