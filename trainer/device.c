/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/device.h"
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "pipeline/memory/alloc.h"
#include "trainer/cpu/device_cpu.h"

enum { MAX_KINDS = 16, MAX_NAME = 64 };

struct mr_device {
    const mr_device_backend *b;
    void *self;
    char name[MAX_NAME];
};
struct mr_stream {
    const mr_device_backend *b;
    void *self;
};
struct mr_event {
    const mr_device_backend *b;
    void *self;
};

static pthread_mutex_t kinds_lock = PTHREAD_MUTEX_INITIALIZER;
static const mr_device_backend *kinds[MAX_KINDS] = {&mr__device_cpu};
static size_t n_kinds = 1;

mr_code mr_device_backend_register(const mr_device_backend *b, mr_status *st)
{
    if (b->abi != MR_DEVICE_ABI)
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "device module '%s' was built for device interface %" PRIu32
                       ", this library has %d; use the module of the same release",
                       b->kind, b->abi, MR_DEVICE_ABI);
    pthread_mutex_lock(&kinds_lock);
    mr_code rc = MR_OK;
    for (size_t i = 0; i < n_kinds && rc == MR_OK; i++)
        if (strcmp(kinds[i]->kind, b->kind) == 0)
            rc = mr_fail(st, MR_ALREADY_EXISTS, "device kind '%s' is registered already", b->kind);
    if (rc == MR_OK && n_kinds == MAX_KINDS)
        rc = mr_fail(st, MR_RESOURCE_EXHAUSTED, "at most %d kinds of devices", MAX_KINDS);
    if (rc == MR_OK)
        kinds[n_kinds++] = b;
    pthread_mutex_unlock(&kinds_lock);
    return rc;
}

void mr_device_each(void (*fn)(void *ctx, const char *kind, size_t n), void *ctx)
{
    const mr_device_backend *copy[MAX_KINDS];
    pthread_mutex_lock(&kinds_lock);
    size_t n = n_kinds;
    memcpy(copy, kinds, sizeof copy);
    pthread_mutex_unlock(&kinds_lock);
    for (size_t i = 0; i < n; i++)
        fn(ctx, copy[i]->kind, copy[i]->count());
}

static const mr_device_backend *find_kind(const char *name, size_t len)
{
    const mr_device_backend *found = NULL;
    pthread_mutex_lock(&kinds_lock);
    for (size_t i = 0; i < n_kinds; i++)
        if (strlen(kinds[i]->kind) == len && memcmp(kinds[i]->kind, name, len) == 0)
            found = kinds[i];
    pthread_mutex_unlock(&kinds_lock);
    return found;
}

/* Splits "cpu:12"; false: not of that form. */
static bool split_name(const char *name, size_t *kind_len, size_t *index)
{
    *kind_len = strcspn(name, ":");
    *index = 0;
    if (*kind_len == 0 || strlen(name) >= MAX_NAME)
        return false;
    if (!name[*kind_len])
        return true;
    const char *p = name + *kind_len + 1;
    size_t digits = strspn(p, "0123456789");
    if (digits == 0 || digits > 6 || p[digits])
        return false;
    *index = (size_t)strtoul(p, NULL, 10);
    return true;
}

mr_code mr_device_open(mr_device **out, const char *name, mr_status *st)
{
    size_t len, index;
    if (!split_name(name, &len, &index))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "a device is named like cpu:0 or cuda:1, found '%.80s'", name);
    const mr_device_backend *b = find_kind(name, len);
    if (!b)
        return mr_fail(st, MR_NOT_FOUND,
                       "no device module for '%.*s' is loaded, so device %s cannot be opened; use "
                       "cpu:0, cpu:1, ...",
                       (int)len, name, name);
    if (index >= b->count())
        return mr_fail(st, MR_NOT_FOUND, "device %s: there are %zu devices of this kind here", name,
                       b->count());
    mr_device *d = mr_calloc(1, sizeof *d);
    if (!d)
        return mr_fail_memory(st, sizeof *d, "a device");
    d->b = b;
    snprintf(d->name, sizeof d->name, "%.*s:%zu", (int)len, name, index);
    mr_code rc = b->open(index, &d->self, st);
    if (rc != MR_OK) {
        mr_free(d);
        return rc;
    }
    *out = d;
    return MR_OK;
}

void mr_device_close(mr_device *d)
{
    if (!d)
        return;
    d->b->close(d->self);
    mr_free(d);
}

const char *mr_device_name(const mr_device *d)
{
    return d->name;
}

mr_code mr_device_alloc(mr_device *d, mr_memory kind, size_t bytes, void **out, mr_status *st)
{
    return d->b->memory_alloc(d->self, kind, bytes, out, st);
}

void mr_device_free(mr_device *d, mr_memory kind, void *p)
{
    if (p)
        d->b->memory_free(d->self, kind, p);
}

mr_code mr_stream_new(mr_stream **out, mr_device *d, mr_status *st)
{
    mr_stream *s = mr_calloc(1, sizeof *s);
    if (!s)
        return mr_fail_memory(st, sizeof *s, "a stream");
    s->b = d->b;
    mr_code rc = d->b->stream_new(d->self, &s->self, st);
    if (rc != MR_OK) {
        mr_free(s);
        return rc;
    }
    *out = s;
    return MR_OK;
}

void mr_stream_free(mr_stream *s)
{
    if (!s)
        return;
    s->b->stream_free(s->self);
    mr_free(s);
}

mr_code mr_event_new(mr_event **out, mr_device *d, mr_status *st)
{
    mr_event *e = mr_calloc(1, sizeof *e);
    if (!e)
        return mr_fail_memory(st, sizeof *e, "an event");
    e->b = d->b;
    mr_code rc = d->b->event_new(d->self, &e->self, st);
    if (rc != MR_OK) {
        mr_free(e);
        return rc;
    }
    *out = e;
    return MR_OK;
}

void mr_event_free(mr_event *e)
{
    if (!e)
        return;
    e->b->event_free(e->self);
    mr_free(e);
}

void mr_stream_copy(mr_stream *s, void *dst, const void *src, size_t bytes)
{
    if (bytes > 0)
        s->b->copy(s->self, dst, src, bytes);
}

void mr_stream_call(mr_stream *s, mr_stream_fn fn, void *ctx)
{
    s->b->call(s->self, fn, ctx);
}

void mr_stream_record(mr_stream *s, mr_event *e)
{
    s->b->record(s->self, e->self);
}

void mr_stream_wait(mr_stream *s, mr_event *e)
{
    s->b->wait(s->self, e->self);
}

void mr_event_synchronize(mr_event *e)
{
    e->b->event_synchronize(e->self);
}

bool mr_event_done(mr_event *e)
{
    return e->b->event_done(e->self);
}
