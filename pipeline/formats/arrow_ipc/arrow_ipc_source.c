/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/arrow_ipc/arrow_ipc_source.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pipeline/bytes.h"
#include "pipeline/system/fork.h"
#include "pipeline/system/system.h"
#include "pipeline/wait/wait.h"

enum {
    PIECE = 64 << 10, /* how far to trust a length if the size of the file is unknown */
    MOST_METADATA = 1 << 28,
    MAX_RETRIES = 1000
};

/* The first bytes of standard input, a pipe, identified by its inode. */
static struct {
    mr__lock lock; /* guards the rest */
    uint64_t inode;
    uint8_t *v;
    size_t n, capacity;
} input = {.lock = MR__LOCK_FREE};

/* ---- bytes ---- */

static mr_code take_head(mr__arrow_source *s, mr_status *st)
{
    struct stat info;
    mr_code rc = MR_OK;
    if (mr__sys->fstat(STDIN_FILENO, &info) != 0)
        return mr_fail_errno(st, errno, "cannot stat standard input");
    mr__lock_take(&input.lock);
    if (input.n && input.inode == (uint64_t)info.st_ino) {
        s->head = mr_memdup(input.v, input.n);
        s->head_size = input.n;
        if (!s->head)
            rc = mr_fail_memory(st, input.n, "the head of standard input");
    }
    mr__lock_release(&input.lock);
    s->stands = (int64_t)s->head_size;
    return rc;
}

mr_code mr__arrow_source_open(mr__arrow_source *s, mr__read_ahead *file, const char *path,
                              mr_status *st)
{
    *s = (mr__arrow_source){
        .file = file, .size = mr__read_ahead_size(file), .seekable = mr__read_ahead_seekable(file)};
    if (!s->seekable && strcmp(path, "-") == 0)
        return take_head(s, st);
    return MR_OK;
}

static void drop_slot(mr__arrow_source *s)
{
    mr_buffer_unref(s->slot);
    s->slot = NULL;
    s->slot_size = 0;
}

void mr__arrow_source_close(mr__arrow_source *s)
{
    drop_slot(s);
    mr_free(s->head);
    *s = (mr__arrow_source){0};
}

/* Reads the next bytes of the file to `to` or into the slot. *got 0: the file ends. */
static mr_code next_bytes(mr__arrow_source *s, void *to, size_t n, size_t *got, mr_status *st)
{
    mr_buffer *slot = NULL;
    uint8_t *data = NULL;
    *got = 0;
    if (!s->file)
        return MR_OK;
    mr_code rc = mr__read_ahead_next(s->file, to, n, &slot, &data, got, st);
    if (rc == MR_END)
        return MR_OK;
    MR_TRY(rc);
    if (slot) {
        drop_slot(s);
        s->slot = slot;
        s->slot_data = data;
        s->slot_size = *got;
        s->slot_at = s->stands;
    }
    s->stands += (int64_t)*got;
    return MR_OK;
}

static bool in_slot(const mr__arrow_source *s, int64_t at)
{
    return s->slot && at >= s->slot_at && at < s->slot_at + (int64_t)s->slot_size;
}

/* Moves to byte `at`. Reads through a short gap if more is in flight. */
static mr_code go_to(mr__arrow_source *s, int64_t at, mr_status *st)
{
    int64_t gap = at - s->stands;
    bool through =
        gap > 0 && (!s->seekable || (s->slot && gap <= (int64_t)(MR__READ_DEPTH * MR__READ_SLOT)));
    if (gap < 0 && !s->seekable)
        return mr_fail(st, MR_FAILED_PRECONDITION, "a pipe cannot be read again from byte %" PRId64,
                       at);
    while (through && s->stands < at) {
        char room[16384];
        size_t got, left = (size_t)(at - s->stands);
        MR_TRY(next_bytes(s, room, left < sizeof room ? left : sizeof room, &got, st));
        if (got == 0)
            break; /* the next read reports the end */
        if (s->stands > at)
            return MR_OK; /* it is in the slot */
    }
    if (s->stands == at || !s->seekable)
        return MR_OK;
    drop_slot(s);
    s->stands = at;
    return mr__read_ahead_seek(s->file, at, st);
}

mr_code mr__arrow_source_read(mr__arrow_source *s, int64_t at, void *to, size_t n, size_t *got,
                              mr_status *st)
{
    char *dst = to;
    *got = 0;
    while (*got < n) {
        int64_t from = at + (int64_t)*got;
        size_t left = n - *got, more = 0;
        if (from < (int64_t)s->head_size) {
            more = s->head_size - (size_t)from;
            more = more < left ? more : left;
            memcpy(dst + *got, s->head + from, more);
        } else if (in_slot(s, from)) {
            more = s->slot_size - (size_t)(from - s->slot_at);
            more = more < left ? more : left;
            memcpy(dst + *got, s->slot_data + (from - s->slot_at), more);
        } else {
            MR_TRY(go_to(s, from, st));
            if (in_slot(s, from))
                continue;
            if (s->stands != from)
                return MR_OK; /* the file ends before it */
            MR_TRY(next_bytes(s, dst + *got, left, &more, st));
            if (more == 0)
                return MR_OK;
            if (in_slot(s, from))
                continue;
        }
        *got += more;
    }
    return MR_OK;
}

static mr_code fail_end(mr_status *st)
{
    return mr_fail(st, MR_DATA_LOSS, "the file ends in the middle of a message; it is truncated");
}

mr_code mr__arrow_source_get(mr__arrow_source *s, int64_t at, uint64_t n, mr_buffer **out,
                             mr_status *st)
{
    if (at < 0 || n > (uint64_t)(INT64_MAX - at) ||
        (s->size >= 0 && (at > s->size || n > (uint64_t)(s->size - at))))
        return fail_end(st);
    mr_buffer *b = NULL;
    size_t used = 0, room = s->size >= 0 || n < PIECE ? (size_t)n : PIECE;
    MR_TRY(mr_buffer_alloc(&b, room ? room : 1, st));
    for (;;) {
        size_t got;
        mr_code rc = mr__arrow_source_read(s, at + (int64_t)used, (char *)mr_buffer_data(b) + used,
                                           room - used, &got, st);
        if (rc == MR_OK && got < room - used)
            rc = fail_end(st);
        mr_buffer *larger = NULL;
        used = room;
        if (rc == MR_OK && room < n) {
            room = n - room < room ? (size_t)n : 2 * room;
            rc = mr_buffer_alloc(&larger, room, st);
        }
        if (rc != MR_OK) {
            mr_buffer_unref(b);
            return rc;
        }
        if (!larger) {
            *out = b;
            return MR_OK;
        }
        memcpy(mr_buffer_data(larger), mr_buffer_data(b), used);
        mr_buffer_unref(b);
        b = larger;
    }
}

/* ---- messages ---- */

mr_code mr__arrow_source_is_file(mr__arrow_source *s, bool *out, mr_status *st)
{
    size_t got;
    MR_TRY(mr__arrow_source_read(s, 0, s->first, sizeof s->first, &got, st));
    s->n_first = got;
    *out = got == sizeof s->first && memcmp(s->first, MR__ARROW_FILE_HEAD, got) == 0;
    if (s->seekable || s->head || got == 0)
        return MR_OK;
    s->head = mr_memdup(s->first, got);
    if (!s->head)
        return mr_fail_memory(st, got, "the head of a pipe");
    s->head_size = got;
    return MR_OK;
}

mr_code mr__arrow_source_message(mr__arrow_source *s, int64_t at, mr_buffer **bytes,
                                 mr__arrow_message *m, int64_t *body, mr_status *st)
{
    uint8_t head[8];
    size_t got, before = 4;
    MR_TRY(mr__arrow_source_read(s, at, head, 4, &got, st));
    if (got == 0 && at < s->size)
        return mr_fail(st, MR_DATA_LOSS, "the file has become shorter while it was read");
    *body = at;
    if (got == 0)
        return MR_END;
    if (got < 4)
        return fail_end(st);
    uint32_t n = (uint32_t)mr__load_le(head, 4);
    if (n == UINT32_MAX) {
        MR_TRY(mr__arrow_source_read(s, at + 4, head + 4, 4, &got, st));
        if (got < 4)
            return fail_end(st);
        n = (uint32_t)mr__load_le(head + 4, 4);
        before = 8;
    }
    *body = at + (int64_t)before;
    if (n == 0)
        return MR_END;
    if (n > MOST_METADATA)
        return mr_fail(st, MR_DATA_LOSS,
                       "no message begins here: its metadata would have %" PRIu32 " bytes", n);
    mr_buffer *b;
    MR_TRY(mr__arrow_source_get(s, at + (int64_t)before, n, &b, st));
    mr_code rc = mr__arrow_message_read(mr_buffer_data(b), n, m, st);
    *body = at + (int64_t)before + (int64_t)n;
    if (rc == MR_OK && m->body_bytes > INT64_MAX - *body)
        rc = mr_fail(st, MR_DATA_LOSS, "a message's body of %" PRId64 " bytes", m->body_bytes);
    if (rc == MR_OK)
        *bytes = b;
    else
        mr_buffer_unref(b);
    return rc;
}

/* ---- the head of standard input ---- */

/* Extends the kept bytes to at least n; *whole: false if the pipe ended before. */
static mr_code keep(size_t n, bool *whole, mr_status *st)
{
    int tries = 0;
    while (input.n < n) {
        size_t want = n - input.n < PIECE ? n - input.n : PIECE;
        MR_TRY(MR_GROW(input.v, input.capacity, input.n + want, SIZE_MAX / 2,
                       "the head of standard input", st));
        int err = mr__wait_readable(STDIN_FILENO, NULL);
        ssize_t got = err ? -1 : mr__sys->read(STDIN_FILENO, input.v + input.n, want);
        if (got < 0 && (err == -EINTR || (!err && (errno == EINTR || errno == EAGAIN))) &&
            tries++ < MAX_RETRIES)
            continue;
        if (got < 0)
            return mr_fail_errno(st, err ? -err : errno, "cannot read standard input");
        if (got == 0)
            break;
        input.n += (size_t)got;
    }
    *whole = input.n >= n;
    return MR_OK;
}

static mr_code keep_schema(mr_status *st)
{
    bool whole;
    size_t at = 0;
    MR_TRY(keep(8, &whole, st));
    if (whole && memcmp(input.v, MR__ARROW_FILE_HEAD, 8) == 0) {
        at = 8;
        MR_TRY(keep(at + 8, &whole, st));
    }
    if (!whole)
        return MR_OK;
    bool marked = (uint32_t)mr__load_le(input.v + at, 4) == UINT32_MAX;
    uint32_t n = (uint32_t)mr__load_le(input.v + at + (marked ? 4 : 0), 4);
    return n <= MOST_METADATA ? keep(at + (marked ? 8 : 4) + n, &whole, st) : MR_OK;
}

mr_code mr__arrow_input_head(mr__arrow_source *s, mr_status *st)
{
    struct stat info;
    *s = (mr__arrow_source){.size = -1};
    if (mr__sys->fstat(STDIN_FILENO, &info) != 0)
        return mr_fail_errno(st, errno, "cannot stat standard input");
    mr__lock_take(&input.lock);
    if (input.inode != (uint64_t)info.st_ino) {
        input.n = 0;
        input.inode = (uint64_t)info.st_ino;
    }
    mr_code rc = keep_schema(st);
    mr__lock_release(&input.lock);
    return rc == MR_OK ? take_head(s, st) : rc;
}
