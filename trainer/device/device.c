/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/device/device.h"
#include "trainer/device/drop.h"
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "pipeline/memory/alloc.h"
#include "pipeline/system/fork.h"
#include "trainer/builtins.h"
#include "trainer/device/device_modules_impl.h"
#include "trainer/device/math.h"
#include "trainer/device/timeline_impl.h"

enum { MAX_KINDS = 16, MAX_NAME = 64 };

struct mr_device {
    const mr_device_backend *b;
    void *self;
    char name[MAX_NAME];
    unsigned forks; /* mr__forks() of the process that opened it */
};
struct mr_event {
    const mr_device_backend *b;
    const mr_device *device;
    void *self;
};

static mr__lock kinds_lock = MR__LOCK_FREE;
static const mr_device_backend *registered[MAX_KINDS];
static size_t n_registered;

/* Lists the kinds of the library, then the registered ones; returns their number. Call with the
 * lock held. */
static size_t list_locked(const mr_device_backend *out[MAX_KINDS])
{
    size_t n = 0;
    for (; mr__builtin_devices[n]; n++)
        out[n] = mr__builtin_devices[n];
    memcpy(out + n, registered, n_registered * sizeof *registered);
    return n + n_registered;
}

static size_t list_kinds(const mr_device_backend *out[MAX_KINDS])
{
    mr__lock_take(&kinds_lock);
    size_t n = list_locked(out);
    mr__lock_release(&kinds_lock);
    return n;
}

/* Whether all mandatory slots are set. */
static bool is_complete(const mr_device_backend *b)
{
    return b->size == sizeof *b && b->probe && b->open && b->close && b->properties &&
           b->libraries && b->memory_alloc && b->memory_free && b->stream_new && b->stream_free &&
           b->event_new && b->event_free && b->copy && b->set && b->host_call && b->record &&
           b->wait && b->event_synchronize && b->event_done && b->stream_synchronize &&
           b->stream_status && b->native_stream && b->math && b->math->size == sizeof *b->math &&
           !b->repeat_begin == !b->repeat_end;
}

mr_code mr_device_backend_register(const mr_device_backend *b, mr_status *st)
{
    if (!b)
        return mr_fail(st, MR_INVALID_ARGUMENT, "the backend is NULL");
    if (b->abi != MR_DEVICE_ABI)
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "device module '%s' was built for device interface %" PRIu32
                       ", this library has %d; use the module of the same release",
                       b->kind, b->abi, MR_DEVICE_ABI);
    if (!is_complete(b))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "device module '%s' lacks a function that the interface needs", b->kind);
    const mr_device_backend *kinds[MAX_KINDS];
    mr_code rc = MR_OK;
    mr__lock_take(&kinds_lock);
    size_t n = list_locked(kinds);
    for (size_t i = 0; i < n && rc == MR_OK; i++)
        if (strcmp(kinds[i]->kind, b->kind) == 0)
            rc = mr_fail(st, MR_ALREADY_EXISTS, "device kind '%s' is registered already", b->kind);
    if (rc == MR_OK && n == MAX_KINDS)
        rc = mr_fail(st, MR_RESOURCE_EXHAUSTED, "at most %d kinds of devices", MAX_KINDS);
    if (rc == MR_OK)
        registered[n_registered++] = b;
    mr__lock_release(&kinds_lock);
    return rc;
}

void mr_device_each(void (*fn)(void *ctx, const char *kind, size_t n, const char *why), void *ctx)
{
    const mr_device_backend *kinds[MAX_KINDS];
    const char *kind, *reason;
    mr__device_modules_load();
    size_t n = list_kinds(kinds);
    for (size_t i = 0; i < n; i++) {
        char why[256] = "";
        size_t count = 0;
        kinds[i]->probe(&count, why, sizeof why);
        fn(ctx, kinds[i]->kind, count, why);
    }
    for (unsigned i = 0; (kind = mr__device_module_missing(i, &reason)); i++)
        fn(ctx, kind, 0, reason);
}

void mr_device_each_library(void (*fn)(void *ctx, const char *kind, const char *name,
                                       const char *version),
                            void *ctx)
{
    const mr_device_backend *kinds[MAX_KINDS];
    mr_device_library libraries[8];
    mr__device_modules_load();
    size_t n = list_kinds(kinds);
    for (size_t i = 0; i < n; i++) {
        size_t found = kinds[i]->libraries(libraries, 8);
        for (size_t k = 0; k < found; k++)
            fn(ctx, kinds[i]->kind, libraries[k].name, libraries[k].version);
    }
}

static const mr_device_backend *find_kind(const char *name, size_t len)
{
    const mr_device_backend *kinds[MAX_KINDS];
    for (size_t i = list_kinds(kinds); i-- > 0;)
        if (strlen(kinds[i]->kind) == len && memcmp(kinds[i]->kind, name, len) == 0)
            return kinds[i];
    return NULL;
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

typedef struct text {
    char *at;
    size_t room;
} text;

static void add_kind(void *ctx, const char *kind, size_t n, const char *why)
{
    text *t = ctx;
    int k;
    if (n == 0)
        k = snprintf(t->at, t->room, "%s: %s; ", kind, why);
    else if (strcmp(kind, "cpu") == 0) /* any number */
        k = snprintf(t->at, t->room, "%s:0, %s:1, ...; ", kind, kind);
    else if (n == 1)
        k = snprintf(t->at, t->room, "%s:0; ", kind);
    else
        k = snprintf(t->at, t->room, "%s:0 to %s:%zu; ", kind, kind, n - 1);
    size_t used = k > 0 ? (size_t)k : 0;
    used = used < t->room ? used : t->room - 1;
    t->at += used;
    t->room -= used;
}

/* Writes "cpu:0, cpu:1, ...; cuda: no NVIDIA driver (libcuda.so.1 not found)" to out. */
static void list_devices(char *out, size_t size)
{
    text t = {out, size};
    out[0] = '\0';
    mr_device_each(add_kind, &t);
    size_t n = strlen(out);
    if (n >= 2 && strcmp(out + n - 2, "; ") == 0)
        out[n - 2] = '\0';
}

mr_code mr_device_open(mr_device **out, const char *name, mr_status *st)
{
    size_t len, index;
    if (!split_name(name, &len, &index))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "expected the name of a device, such as cpu:0 or cuda:1, found '%.80s'",
                       name);
    mr__device_modules_load();
    const mr_device_backend *b = find_kind(name, len);
    size_t count = 0;
    char why[256] = "";
    if (b)
        b->probe(&count, why, sizeof why);
    if (index >= count) {
        char all[512];
        list_devices(all, sizeof all);
        return mr_fail(st, MR_NOT_FOUND, "device %s is not available; this machine has %s", name,
                       all);
    }
    mr_device *d = mr_calloc(1, sizeof *d);
    if (!d)
        return mr_fail_memory(st, sizeof *d, "a device");
    d->b = b;
    d->forks = mr__forks();
    snprintf(d->name, sizeof d->name, "%.*s:%zu", (int)len, name, index);
    mr_code rc = b->open(index, &d->self, st);
    if (rc != MR_OK) {
        mr_free(d);
        return rc;
    }
    *out = d;
    return MR_OK;
}

/* In a forked child the threads of the streams do not exist, and other back ends do not work. */
static bool is_here(const mr_device *d)
{
    return d->forks == mr__forks();
}

static mr_code check_process(const mr_device *d, mr_status *st)
{
    return mr__check_process(d->forks, "the device", st);
}

void mr_device_close(mr_device *d)
{
    if (!d || !is_here(d))
        return;
    d->b->close(d->self);
    mr_free(d);
}

const char *mr_device_name(const mr_device *d)
{
    return d->name;
}

const char *mr_device_kind(const mr_device *d)
{
    return d->b->kind;
}

bool mr_device_reaches(const mr_device *d, const mr_device *other)
{
    return d->b == other->b && (!d->b->reaches || d->b->reaches(d->self, other->self));
}

void mr_device_describe(const mr_device *d, mr_device_properties *out)
{
    *out = (mr_device_properties){0};
    d->b->properties(d->self, out);
}

const mr_math_table *mr_device_math(const mr_device *d)
{
    return d->b->math;
}

mr_code mr_device_alloc(mr_device *d, mr_memory kind, size_t bytes, void **out, mr_status *st)
{
    MR_TRY(check_process(d, st));
    mr__span *span = mr__span_begin(MR_SPAN_SYNC, "memory_alloc");
    mr_code rc = d->b->memory_alloc(d->self, kind, bytes, NULL, out, st);
    mr__span_end(span);
    return rc;
}

void mr_device_free(mr_device *d, mr_memory kind, void *p)
{
    if (!p || !is_here(d))
        return;
    mr__span *span = mr__span_begin(MR_SPAN_SYNC, "memory_free");
    d->b->memory_free(d->self, kind, p, NULL);
    mr__span_end(span);
}

mr_code mr_stream_new(mr_stream **out, mr_device *d, mr_stream_kind kind, mr_status *st)
{
    MR_TRY(check_process(d, st));
    mr_stream *s = mr_calloc(1, sizeof *s);
    if (!s)
        return mr_fail_memory(st, sizeof *s, "a stream");
    s->backend = d->b;
    s->device = d;
    mr_code rc = d->b->stream_new(d->self, kind, &s->self, st);
    if (rc != MR_OK) {
        mr_free(s);
        return rc;
    }
    *out = s;
    return MR_OK;
}

void mr_stream_free(mr_stream *s)
{
    if (!s || !is_here(s->device))
        return;
    mr__span *span = mr__span_begin(MR_SPAN_SYNC, "stream_free");
    s->backend->stream_free(s->self);
    mr__span_end(span);
    mr_free(s);
}

mr_code mr_event_new(mr_event **out, mr_device *d, mr_status *st)
{
    MR_TRY(check_process(d, st));
    mr_event *e = mr_calloc(1, sizeof *e);
    if (!e)
        return mr_fail_memory(st, sizeof *e, "an event");
    e->b = d->b;
    e->device = d;
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
    if (!e || !is_here(e->device))
        return;
    e->b->event_free(e->self);
    mr_free(e);
}

mr_code mr_stream_alloc(mr_stream *s, size_t bytes, void **out, mr_status *st)
{
    MR_TRY(check_process(s->device, st));
    return s->backend->memory_alloc(s->device->self, MR_MEMORY_DEVICE, bytes, s->self, out, st);
}

void mr_stream_release(mr_stream *s, void *p)
{
    if (p && is_here(s->device))
        s->backend->memory_free(s->device->self, MR_MEMORY_DEVICE, p, s->self);
}

mr_code mr_stream_copy(mr_stream *s, void *dst, const void *src, size_t bytes, mr_status *st)
{
    MR_TRY(check_process(s->device, st));
    return bytes > 0 ? s->backend->copy(s->self, dst, src, bytes, st) : MR_OK;
}

mr_code mr_stream_set(mr_stream *s, void *dst, int byte, size_t bytes, mr_status *st)
{
    MR_TRY(check_process(s->device, st));
    return bytes > 0 ? s->backend->set(s->self, dst, byte, bytes, st) : MR_OK;
}

mr_code mr_stream_host_call(mr_stream *s, mr_stream_fn fn, void *ctx, mr_status *st)
{
    MR_TRY(check_process(s->device, st));
    return s->backend->host_call(s->self, fn, ctx, st);
}

mr_code mr_stream_launch(mr_stream *s, mr_kernel_fn fn, const void *args, size_t size,
                         mr_status *st)
{
    MR_TRY(check_process(s->device, st));
    if (!s->backend->launch)
        return mr_fail(st, MR_UNIMPLEMENTED,
                       "host functions cannot run as kernels on %s; launch device kernels on "
                       "mr_stream_native, or use the operations of the table",
                       s->device->name);
    return s->backend->launch(s->self, fn, args, size, st);
}

mr_code mr_stream_record(mr_stream *s, mr_event *e, mr_status *st)
{
    MR_TRY(check_process(s->device, st));
    return s->backend->record(s->self, e->self, st);
}

mr_code mr_stream_wait(mr_stream *s, mr_event *e, mr_status *st)
{
    MR_TRY(check_process(s->device, st));
    return s->backend->wait(s->self, e->self, st);
}

mr_code mr_stream_synchronize(mr_stream *s, mr_status *st)
{
    MR_TRY(check_process(s->device, st));
    mr__span *span = mr__span_begin(MR_SPAN_SYNC, "stream_synchronize");
    mr_code rc = s->backend->stream_synchronize(s->self, st);
    mr__span_end(span);
    return rc;
}

mr_code mr_stream_status(mr_stream *s, mr_status *st)
{
    MR_TRY(check_process(s->device, st));
    return s->backend->stream_status(s->self, st);
}

void mr_stream_flush(mr_stream *s)
{
    if (s->backend->flush && is_here(s->device))
        s->backend->flush(s->self);
}

bool mr__stream_can_drop(const mr_stream *s)
{
    return s->backend->section != NULL;
}

static mr_code mark_section(mr_stream *s, mr_section_mark mark, mr_drop *d, uint64_t section,
                            mr_status *st)
{
    MR_TRY(check_process(s->device, st));
    return s->backend->section ? s->backend->section(s->self, mark, d, section, st) : MR_OK;
}

mr_code mr__stream_section_begin(mr_stream *s, mr_drop *d, uint64_t section, mr_status *st)
{
    return mark_section(s, MR_SECTION_BEGINS, d, section, st);
}

mr_code mr__stream_section_keep(mr_stream *s, mr_status *st)
{
    return mark_section(s, MR_SECTION_IS_KEPT, NULL, 0, st);
}

mr_code mr__stream_section_end(mr_stream *s, mr_status *st)
{
    return mark_section(s, MR_SECTION_ENDS, NULL, 0, st);
}

void *mr_stream_native(mr_stream *s)
{
    return s->backend->native_stream(s->self);
}

mr_code mr_stream_repeat_begin(mr_stream *s, uint64_t key, mr_status *st)
{
    MR_TRY(check_process(s->device, st));
    return s->backend->repeat_begin ? s->backend->repeat_begin(s->self, key, st) : MR_OK;
}

mr_code mr_stream_repeat_end(mr_stream *s, mr_status *st)
{
    MR_TRY(check_process(s->device, st));
    return s->backend->repeat_end ? s->backend->repeat_end(s->self, st) : MR_OK;
}

mr_code mr_event_synchronize(mr_event *e, mr_status *st)
{
    MR_TRY(check_process(e->device, st));
    mr__span *span = mr__span_begin(MR_SPAN_SYNC, "event_synchronize");
    mr_code rc = e->b->event_synchronize(e->self, st);
    mr__span_end(span);
    return rc;
}

bool mr_event_done(mr_event *e)
{
    return !is_here(e->device) || e->b->event_done(e->self);
}
