/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/remote/object_stream.h"

#include <string.h>

#include "pipeline/memory_bound.h"
#include "pipeline/remote/cache_fetch.h"
#include "pipeline/remote/object_ranges.h"
#include "pipeline/system/name_scope.h"
#include "pipeline/system/system.h"

enum {
    ROOM = 64,        /* for ranges in flight, if their number is set */
    MOST_RANGES = 16, /* while the number is measured */
    LEAST_RANGES = 2, /* one is received while the next one is asked for */
    FEW_RANGES = 4,   /* fewer would not hide a round trip of 50 ms at 100 MB/s and more */
    MEASURE_AGAIN = 64
};
#define FIRST_RANGE  ((int64_t)1 << 20)
#define LEAST_RANGE  ((int64_t)64 << 10)
#define MOST_RANGE   ((int64_t)8 << 20)
#define MOST_ALL     ((int64_t)256 << 20) /* in flight in the process */
#define MOST_LIMITED ((int64_t)3 << 20)   /* in flight of a stream under a memory limit */

typedef struct range {
    mr__fetch *transfer;
    int64_t bytes; /* of the range that have not been returned */
} range;

struct mr__object_stream {
    mr__object *object;
    mr_cancel *cancel;
    bool ahead;
    int64_t offset;                  /* of the next byte to return */
    int64_t next;                    /* of the next range */
    int64_t size;                    /* of the next range */
    unsigned most;                   /* ranges in flight */
    int64_t connections, read_ahead; /* mr_iterator_opts's; 0: measured */
    range ranges[ROOM];
    unsigned head, n;
    int64_t counted; /* of all_bytes */
    /* The number of ranges doubles while that makes a consumer that waits at least a tenth faster:
     * more ranges than the network needs cost memory that is touched for the first time. If the
     * thread of all transfers has no time to wait, the least number of ranges suffices. */
    int64_t began, worked, bytes; /* of a measurement: as many ranges as are in flight */
    unsigned n_measured;
    bool waited, settled;
    double rate;      /* of the measurement before */
    int64_t first_at; /* when the first bytes came; 0: not yet; -1: it does not matter */
};

static atomic_int_fast64_t all_bytes; /* of ranges in flight, of all streams */

static bool is_known(const mr__object_stream *s)
{
    return atomic_load_explicit(&s->object->known, memory_order_acquire);
}

/* Counts the bytes of all ranges that have not been returned. */
static void count(mr__object_stream *s, int64_t change)
{
    s->counted += change;
    /* Relaxed: it orders nothing. */
    atomic_fetch_add_explicit(&all_bytes, change, memory_order_relaxed);
}

/* Bytes that all streams may have in flight: of a memory limit a small part, since a source counts
 * as one local file, which has less than 4 MiB in memory. */
static int64_t most_of_all(void)
{
    size_t bound = mr__memory_bound(); /* a few times the limit */
    return bound == SIZE_MAX || bound / 64 > MOST_ALL ? MOST_ALL : (int64_t)(bound / 64);
}

static bool is_too_much(int64_t bytes)
{
    return atomic_load_explicit(&all_bytes, memory_order_relaxed) + bytes > most_of_all();
}

static void drop_ranges(mr__object_stream *s)
{
    for (unsigned i = 0; i < s->n; i++)
        mr__fetch_drop(s->ranges[(s->head + i) % ROOM].transfer);
    s->head = s->n = 0;
    count(s, -s->counted);
}

static void begin_measurement(mr__object_stream *s)
{
    s->began = mr__clock_ns(CLOCK_MONOTONIC);
    s->worked = mr__transfer_worked();
    s->bytes = 0;
    s->n_measured = 0;
    s->waited = false;
}

/* The first range has been returned: sets the number of ranges that hides the wait for a first
 * byte. */
static void estimate(mr__object_stream *s)
{
    int64_t wait = s->first_at - s->began, took = mr__clock_ns(CLOCK_MONOTONIC) - s->first_at + 1;
    while (s->waited && s->most < MOST_RANGES && s->most < 1 + wait / took)
        s->most *= 2;
    s->first_at = -1;
}

/* A range has been returned. */
static void measure(mr__object_stream *s)
{
    if (s->first_at > 0)
        estimate(s);
    if (++s->n_measured < (s->settled ? MEASURE_AGAIN : s->most))
        return;
    int64_t elapsed = mr__clock_ns(CLOCK_MONOTONIC) - s->began + 1;
    bool busy = 5 * (mr__transfer_worked() - s->worked) > 4 * elapsed;
    double rate = (double)s->bytes / (double)elapsed;
    if (s->settled) {
        s->settled = false;
        s->rate = 0;
    } else if (s->connections) {
        s->settled = true;
    } else if (s->waited && busy) {
        s->most = LEAST_RANGES;
        s->settled = true;
    } else if (s->waited && rate > 1.1 * s->rate) {
        s->rate = rate;
        s->settled = s->most >= MOST_RANGES;
        if (!s->settled)
            s->most *= 2;
    } else if (s->waited && s->most >= FEW_RANGES) {
        s->most = s->most / 2 > FEW_RANGES ? s->most / 2 : FEW_RANGES;
        s->settled = true;
    }
    begin_measurement(s);
}

/* So that as many ranges as are to be read at once are what is read ahead. */
static int64_t largest(const mr__object_stream *s)
{
    int64_t part = s->read_ahead / (s->connections ? s->connections : 4);
    if (!s->read_ahead || part > MOST_RANGE)
        return MOST_RANGE;
    return part > LEAST_RANGE ? part : LEAST_RANGE;
}

static void restart(mr__object_stream *s, int64_t offset, bool ahead)
{
    drop_ranges(s);
    s->offset = s->next = offset;
    s->size = ahead ? largest(s) : FIRST_RANGE < largest(s) ? FIRST_RANGE : largest(s);
    s->most = ahead ? LEAST_RANGES : 1;
    if (s->connections)
        s->most = s->connections < ROOM ? (unsigned)s->connections : ROOM;
    s->rate = 0;
    s->settled = false;
    s->first_at = ahead && !s->connections ? 0 : -1;
    begin_measurement(s);
}

/* The next range may be started. The first always may. */
static bool has_room(const mr__object_stream *s)
{
    if (s->n == 0)
        return true;
    if (s->read_ahead && s->counted + s->size > s->read_ahead)
        return false;
    if (mr__remote_is_limited())
        return s->counted + FIRST_RANGE <= MOST_LIMITED;
    return s->n < s->most && !is_too_much(s->size);
}

static bool is_at_end(const mr__object_stream *s)
{
    return is_known(s) && s->object->info.size >= 0 && s->next >= s->object->info.size;
}

/* A server without ranges sends everything after the first byte in one transfer. */
static bool is_one_transfer(const mr__object_stream *s)
{
    return s->n > 0 && (!is_known(s) || !s->object->info.ranges);
}

static mr_code start_ranges(mr__object_stream *s, mr_status *st)
{
    while (!is_at_end(s) && !is_one_transfer(s) && has_room(s)) {
        range *r = &s->ranges[(s->head + s->n) % ROOM];
        int64_t bytes = s->size;
        if ((mr__remote_is_limited() || is_too_much(bytes)) && bytes > FIRST_RANGE)
            bytes = FIRST_RANGE;
        if (is_known(s) && s->object->info.size >= 0 && bytes > s->object->info.size - s->next)
            bytes = s->object->info.size - s->next;
        mr_code rc = mr__fetch_start(&r->transfer, s->object, s->next, s->next + bytes, false, st);
        if (rc != MR_OK) /* with ranges in flight, fewer suffice */
            return s->n ? MR_OK : rc;
        r->bytes = bytes;
        count(s, bytes);
        s->n++;
        s->next += bytes;
        s->size = s->size * 2 < largest(s) ? s->size * 2 : largest(s);
    }
    return MR_OK;
}

mr_code mr__object_stream_open(mr__object_stream **out, const char *url, int64_t start, bool ahead,
                               mr_cancel *cancel, mr_status *st)
{
    mr__object_stream *s = mr_calloc(1, sizeof *s);
    if (!s)
        return mr_fail_memory(st, sizeof *s, "a reader of a remote object");
    s->cancel = cancel;
    s->ahead = ahead;
    s->connections = mr__name_scope_get().remote_connections;
    s->read_ahead = mr__name_scope_get().remote_read_ahead;
    mr_code rc = mr__object_open(&s->object, url, st);
    if (rc == MR_OK) {
        mr__cache *cache;
        restart(s, start, ahead);
        rc = mr__cache_current(&cache, st);
        /* Its ETag leads to the pieces in the cache. */
        if (rc == MR_OK && (cache || mr__cache_is_offline()))
            rc = mr__object_need_known(s->object, cancel, st);
        if (rc == MR_OK && !is_known(s)) {
            rc = start_ranges(s, st);
            if (rc == MR_OK)
                rc = mr__fetch_wait_known(s->ranges[s->head].transfer, cancel, st);
        }
    }
    if (rc != MR_OK) {
        mr__object_stream_close(s);
        return rc;
    }
    *out = s;
    return MR_OK;
}

void mr__object_stream_close(mr__object_stream *s)
{
    if (!s)
        return;
    drop_ranges(s);
    mr__object_unref(s->object);
    mr_free(s);
}

uint64_t mr__object_stream_mark(const mr__object_stream *s)
{
    return mr__object_mark(s->object);
}

int64_t mr__object_stream_size(const mr__object_stream *s)
{
    return is_known(s) ? s->object->info.size : -1;
}

void mr__object_stream_seek(mr__object_stream *s, int64_t offset)
{
    if (offset != s->offset)
        restart(s, offset, false);
}

/* The first range has been returned. */
static void pop(mr__object_stream *s)
{
    range *r = &s->ranges[s->head];
    mr__fetch_drop(r->transfer);
    count(s, -r->bytes);
    s->head = (s->head + 1) % ROOM;
    s->n--;
    measure(s);
}

/* Counts bytes of the first range as returned. */
static void count_returned(mr__object_stream *s, size_t got)
{
    range *r = &s->ranges[s->head];
    int64_t bytes = (int64_t)got < r->bytes ? (int64_t)got : r->bytes;
    r->bytes -= bytes;
    count(s, -bytes);
    s->offset += (int64_t)got;
    s->bytes += (int64_t)got;
}

size_t mr__object_stream_read(mr__object_stream *s, void *data, size_t n)
{
    size_t got = s->n ? mr__fetch_read(s->ranges[s->head].transfer, data, n) : 0;
    if (got)
        count_returned(s, got);
    return got;
}

mr_code mr__object_stream_next(mr__object_stream *s, mr_buffer **slot, uint8_t **data, size_t *got,
                               mr_status *st)
{
    for (;;) {
        mr_code rc = start_ranges(s, st);
        if (rc == MR_OK && s->n == 0)
            return MR_END;
        if (rc == MR_OK) {
            range *r = &s->ranges[s->head];
            s->waited = s->waited || !mr__fetch_has_next(r->transfer);
            rc = mr__fetch_take(r->transfer, s->cancel, slot, data, got, st);
            if (rc == MR_OK) {
                count_returned(s, *got);
                if (!s->first_at)
                    s->first_at = mr__clock_ns(CLOCK_MONOTONIC);
                return MR_OK;
            }
            if (rc == MR_END) {
                bool whole = !s->object->info.ranges;
                pop(s);
                if (whole)
                    return MR_END;
                continue;
            }
        }
        mr_status_at(st, s->object->url, s->offset, -1);
        if (rc == MR_NOT_FOUND) /* it was there when it was listed or opened */
            mr_status_of_no_element(st);
        if (rc != MR_CANCELLED)
            restart(s, s->offset, s->ahead);
        return rc;
    }
}
