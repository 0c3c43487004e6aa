/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_DEVICE_H
#define MR_TRAINER_DEVICE_H
/* Devices: memory, streams and events behind one small interface, so that staging, overlap and
 * ordering are the same code, and are tested the same way, on a CPU and on an accelerator.
 *
 * A device is *logical*: "cpu:0" and "cpu:1" are two devices of one processor, each with threads
 * and memory of its own. A stream is a queue of commands that run one after the other, beside the
 * host and beside other streams. An event is a mark in a stream that other streams and the host can
 * wait for:
 *
 *     copy stream     copy(slot) --record(arrived)
 *                                        \
 *     compute stream          wait(arrived)--call(step)--record(released)
 *
 * The CPU device runs each stream in a thread of its own. Other kinds (CUDA) are back ends that
 * register themselves with the ABI version they were built for.
 *
 * thread   any for devices, events and opening; one at a time per stream for submitting to it
 * since    0.1 */
#include <stdbool.h>
#include "../pipeline/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_device mr_device;
typedef struct mr_stream mr_stream;
typedef struct mr_event mr_event;

typedef enum mr_memory {
    MR_MEMORY_HOST,   /* plain memory */
    MR_MEMORY_PINNED, /* host memory that the device copies from and to without a detour */
    MR_MEMORY_DEVICE  /* where kernels read and write */
} mr_memory;

/* Runs fn(ctx) in stream order. fn must not submit to the stream that runs it. */
typedef void (*mr_stream_fn)(void *ctx);

/* Must match exactly: a back end built for another version is refused. */
#define MR_DEVICE_ABI 1

/* A kind of device. Handles are the back end's own; `self` is what open returned. Nothing here is
 * called twice at a time for one stream; everything else may be called from any thread. */
typedef struct mr_device_backend {
    uint32_t abi;     /* MR_DEVICE_ABI */
    const char *kind; /* the name before the colon: "cpu" */
    /* How many devices of this kind can be opened; 0 is not an error. */
    size_t (*count)(void);
    /* Makes *self for device `index` < count(). On failure nothing is owed. */
    mr_code (*open)(size_t index, void **self, mr_status *st);
    /* All streams, events and memory are gone by now. */
    void (*close)(void *self);
    /* *out is 64-byte aligned; contents undefined. errors MR_RESOURCE_EXHAUSTED */
    mr_code (*memory_alloc)(void *self, mr_memory kind, size_t bytes, void **out, mr_status *st);
    void (*memory_free)(void *self, mr_memory kind, void *p);
    mr_code (*stream_new)(void *self, void **out, mr_status *st);
    /* Waits until everything submitted has run, then frees. */
    void (*stream_free)(void *stream);
    mr_code (*event_new)(void *self, void **out, mr_status *st);
    void (*event_free)(void *event);
    /* These four return at once; what they ask for happens in stream order. src and dst (which may
     * be of any memory kind) must stay until it has happened. */
    void (*copy)(void *stream, void *dst, const void *src, size_t bytes);
    void (*call)(void *stream, mr_stream_fn fn, void *ctx);
    void (*record)(void *stream, void *event);
    /* The stream goes on when the event's last record before this call has been reached; at once if
     * it was never recorded. */
    void (*wait)(void *stream, void *event);
    /* Host side: wait for the last record so far; ask whether it has been reached. */
    void (*event_synchronize)(void *event);
    bool (*event_done)(void *event);
} mr_device_backend;

/* Makes a kind of device known; b stays the caller's and must outlive its use. "cpu" is always
 * known. errors MR_FAILED_PRECONDITION: another ABI version · MR_ALREADY_EXISTS: the kind is known
 * · MR_RESOURCE_EXHAUSTED: too many kinds */
MR_API mr_code mr_device_backend_register(const mr_device_backend *b, mr_status *st) MR_NODISCARD;

/* Calls fn("cpu", 2) for every known kind with the number of its devices. */
MR_API void mr_device_each(void (*fn)(void *ctx, const char *kind, size_t n), void *ctx);

/* Opens "KIND:INDEX" ("cpu" alone is "cpu:0"). Returns owned.
 * errors   MR_INVALID_ARGUMENT: not of that form · MR_NOT_FOUND: no such kind or index here */
MR_API mr_code mr_device_open(mr_device **out, const char *name, mr_status *st) MR_NODISCARD;
MR_API void mr_device_close(mr_device *d);             /* NULL: nothing */
MR_API const char *mr_device_name(const mr_device *d); /* "cpu:0"; borrowed until close */

/* Memory of a kind, aligned for the device. errors MR_RESOURCE_EXHAUSTED */
MR_API mr_code mr_device_alloc(mr_device *d, mr_memory kind, size_t bytes, void **out,
                               mr_status *st) MR_NODISCARD;
MR_API void mr_device_free(mr_device *d, mr_memory kind, void *p); /* p NULL: nothing */

/* Streams run what they are given in order; events tell how far one has come. Return owned. */
MR_API mr_code mr_stream_new(mr_stream **out, mr_device *d, mr_status *st) MR_NODISCARD;
MR_API void mr_stream_free(mr_stream *s); /* runs what was submitted first; NULL: nothing */
MR_API mr_code mr_event_new(mr_event **out, mr_device *d, mr_status *st) MR_NODISCARD;
MR_API void mr_event_free(mr_event *e); /* NULL: nothing */

/* See the slots of the same name above. */
MR_API void mr_stream_copy(mr_stream *s, void *dst, const void *src, size_t bytes);
MR_API void mr_stream_call(mr_stream *s, mr_stream_fn fn, void *ctx);
MR_API void mr_stream_record(mr_stream *s, mr_event *e);
MR_API void mr_stream_wait(mr_stream *s, mr_event *e);
MR_API void mr_event_synchronize(mr_event *e);
MR_API bool mr_event_done(mr_event *e);

#ifdef __cplusplus
}
#endif
#endif
