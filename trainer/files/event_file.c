/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/files/event_file.h"
#include <fcntl.h>
#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "pipeline/bytes.h"
#include "pipeline/crc32c.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/remote/store_internal.h"
#include "pipeline/system/retry.h"
#include "pipeline/varint.h"
#include "trainer/files/saved_files.h"

enum { MAX_TAG = 256, MAX_EVENT = MAX_TAG + 128, FRAME = 16 };

struct mr__event_file {
    int fd;
    char *path;
    int64_t size;
};

/* A message being written, and its field types. */
typedef struct message {
    unsigned char bytes[MAX_EVENT];
    size_t n;
} message;

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

static void put_varint(message *m, uint64_t v)
{
    m->n = (size_t)(mr__varint_put(m->bytes + m->n, v) - m->bytes);
}

static void put_key(message *m, unsigned field, unsigned type)
{
    put_varint(m, field << 3 | type);
}

static void put_bytes(message *m, unsigned field, const void *bytes, size_t n)
{
    put_key(m, field, BYTES);
    put_varint(m, n);
    memcpy(m->bytes + m->n, bytes, n);
    m->n += n;
}

static double wall_time(void)
{
    struct timespec t = {0};
    if (mr__sys->clock_gettime(CLOCK_REALTIME, &t) != 0)
        return 0;
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void begin_event(message *m)
{
    double now = wall_time();
    uint64_t bits;
    memcpy(&bits, &now, sizeof bits);
    m->n = 0;
    put_key(m, 1, FIXED64);
    mr__store_le(m->bytes + m->n, bits, 8);
    m->n += 8;
}

/* Writes one record, in one write if the system accepts it whole. */
static mr_code put_record(mr__event_file *f, const message *m, mr_status *st)
{
    unsigned char record[MAX_EVENT + FRAME];
    mr__store_le(record, m->n, 8);
    mr__store_le(record + 8, mr_crc32c_mask(mr_crc32c(record, 8)), 4);
    memcpy(record + 12, m->bytes, m->n);
    mr__store_le(record + 12 + m->n, mr_crc32c_mask(mr_crc32c(m->bytes, m->n)), 4);
    if (mr__write_all(f->fd, record, m->n + FRAME) == 0) {
        f->size += (int64_t)m->n + FRAME;
        return MR_OK;
    }
    mr_code rc = mr_fail_errno(st, errno, "tensorboard: cannot write an event");
    mr_status_at(st, f->path, -1, -1);
    return rc;
}

static mr_code open_in(mr__event_file *f, const char *directory, mr_status *st)
{
    static atomic_uint counter;
    static const char version[] = "brain.Event:2";
    char name[128];
    message m;
    MR_TRY(mr__store_refuse_writing(directory, st));
    MR_TRY(mr__make_directories(directory, st));
    snprintf(name, sizeof name, "events.out.tfevents.%.0f.%ld.%u", wall_time(), (long)getpid(),
             atomic_fetch_add(&counter, 1));
    if (!(f->path = mr__path_in(directory, name)))
        return mr_fail_memory(st, sizeof name, "a file name");
    f->fd = mr__sys->open(f->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_APPEND, 0666);
    if (f->fd < 0) {
        mr_code rc = mr_fail_errno(st, errno, "tensorboard: cannot make the file");
        mr_status_at(st, f->path, -1, -1);
        return rc;
    }
    begin_event(&m);
    put_bytes(&m, 3, version, sizeof version - 1);
    return put_record(f, &m, st);
}

mr_code mr__event_file_open(mr__event_file **out, const char *directory, mr_status *st)
{
    mr__event_file *f = mr_calloc(1, sizeof *f);
    if (!f)
        return mr_fail_memory(st, sizeof *f, "an event file");
    f->fd = -1;
    mr_code rc = open_in(f, directory, st);
    if (rc == MR_OK)
        *out = f;
    else
        mr__event_file_close(f);
    return rc;
}

static mr_code open_again(mr__event_file *f, const char *directory, const char *name, int64_t size,
                          mr_status *st)
{
    struct stat is;
    if (!(f->path = mr__path_in(directory, name)))
        return mr_fail_memory(st, strlen(name), "a file name");
    f->fd = mr__open_again(f->path, O_WRONLY | O_APPEND);
    mr_code rc = MR_OK;
    if (f->fd < 0 || mr__sys->fstat(f->fd, &is) != 0)
        rc = mr_fail_errno(st, errno, "tensorboard: cannot open the file");
    else if (is.st_size < size)
        rc = mr_fail(st, MR_FAILED_PRECONDITION,
                     "tensorboard: the file has %" PRId64 " bytes, expected at least %" PRId64,
                     (int64_t)is.st_size, size);
    else if (mr__sys->ftruncate(f->fd, (off_t)size) != 0)
        rc = mr_fail_errno(st, errno, "tensorboard: cannot cut the file");
    f->size = size;
    if (rc != MR_OK)
        mr_status_at(st, f->path, -1, -1);
    return rc;
}

mr_code mr__event_file_reopen(mr__event_file **out, const char *directory, const char *name,
                              int64_t size, mr_status *st)
{
    mr__event_file *f = mr_calloc(1, sizeof *f);
    if (!f)
        return mr_fail_memory(st, sizeof *f, "an event file");
    f->fd = -1;
    mr_code rc = open_again(f, directory, name, size, st);
    if (rc == MR_OK)
        *out = f;
    else
        mr__event_file_close(f);
    return rc;
}

const char *mr__event_file_name(const mr__event_file *f)
{
    return mr__name_in_path(f->path);
}

int64_t mr__event_file_size(const mr__event_file *f)
{
    return f->size;
}

void mr__event_file_sync(const mr__event_file *f)
{
    if (mr__fsync_again(f->fd) != 0)
        errno = 0; /* not every file can be synced */
}

mr_code mr__event_file_add(mr__event_file *f, const char *tag, int64_t step, float value,
                           mr_status *st)
{
    message m, summary = {.n = 0}, v = {.n = 0};
    uint32_t bits;
    size_t n = strlen(tag);
    if (n > MAX_TAG)
        return mr_fail(st, MR_INVALID_ARGUMENT, "tensorboard: a name of more than %d bytes",
                       MAX_TAG);
    memcpy(&bits, &value, sizeof bits);
    put_bytes(&v, 1, tag, n);
    put_key(&v, 2, FIXED32);
    mr__store_le(v.bytes + v.n, bits, 4);
    v.n += 4;
    put_bytes(&summary, 1, v.bytes, v.n);
    begin_event(&m);
    put_key(&m, 2, VARINT);
    put_varint(&m, (uint64_t)step);
    put_bytes(&m, 5, summary.bytes, summary.n);
    return put_record(f, &m, st);
}

void mr__event_file_close(mr__event_file *f)
{
    if (!f)
        return;
    if (f->fd >= 0)
        mr__sys->close(f->fd);
    mr_free(f->path);
    mr_free(f);
}
