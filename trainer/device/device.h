/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_DEVICE_DEVICE_H
#define MR_TRAINER_DEVICE_DEVICE_H
/* Devices: a small interface over memory, streams, events and a table of numeric operations, so
 * that staging, overlap and training run the same code, and are tested the same way, on a CPU and
 * on an accelerator.
 *
 * A device is *logical*: "cpu:0" and "cpu:1" are two devices of one processor, each with separate
 * threads and memory. A stream is a queue of commands that run in order, concurrently with the host
 * and with other streams. An event is a mark in a stream that other streams and the host can wait
 * for:
 *
 *     copy stream     copy(slot) --record(arrived)
 *                                        \
 *     compute stream          wait(arrived)--operations--record(released)
 *
 * A call that submits work returns at once and fails only if its arguments are wrong. An error that
 * occurs later, while the stream runs, is *sticky*: the next call that synchronises with the stream
 * returns it, and so does every later one; the results of that device are then invalid.
 *
 * The CPU device runs each stream in a separate thread. Other kinds (CUDA) are back ends, loaded
 * from modules or registered by the program; their ABI version must match.
 *
 * thread   any for devices, events and opening; one at a time per stream for submitting to it
 * since    0.1 */
#include <stdbool.h>
#include <stddef.h>
#include "../../pipeline/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_device mr_device;
typedef struct mr_stream mr_stream;
typedef struct mr_event mr_event;
typedef struct mr_math_table mr_math_table; /* math.h */

typedef enum mr_memory {
    MR_MEMORY_HOST,   /* plain memory */
    MR_MEMORY_PINNED, /* host memory that the device copies from and to directly */
    MR_MEMORY_DEVICE  /* read and written by kernels; the host accesses it only through copies */
} mr_memory;

typedef enum mr_stream_kind {
    MR_STREAM_COMPUTE, /* kernels */
    MR_STREAM_COPY,    /* copies between host and device */
    MR_STREAM_COMM     /* sums over devices; may get a higher priority than compute */
} mr_stream_kind;

/* Runs fn(ctx) in stream order on some thread of the host. */
typedef void (*mr_stream_fn)(void *ctx);
/* A kernel that runs as a host function; args points to a copy of the caller's arguments. */
typedef void (*mr_kernel_fn)(void *args);

enum { MR_KERNEL_ARGS = 256 }; /* maximum size of args in bytes */

/* Properties of a device. Unknown text is empty. */
typedef struct mr_device_properties {
    char model[128]; /* "NVIDIA H100 80GB HBM3" */
    char uuid[64];
    char pci[32];
    uint64_t memory_bytes; /* 0: unknown */
    int32_t major, minor;  /* compute capability; 0.0: does not apply */
    bool unified;      /* device memory is host memory: the host may touch it, in stream order */
    bool host_kernels; /* mr_stream_launch works */
} mr_device_properties;

typedef struct mr_device_library {
    char name[16], version[32]; /* "cudnn", "9.1.0" */
} mr_device_library;

/* Must match exactly: a back end built for another version is refused. */
#define MR_DEVICE_ABI 6

typedef struct mr_drop mr_drop;
typedef enum mr_section_mark {
    MR_SECTION_BEGINS,
    MR_SECTION_IS_KEPT, /* unless it was dropped before */
    MR_SECTION_ENDS
} mr_section_mark;

/* A kind of device. `self` is the handle that open returned; stream and event handles belong to the
 * back end (mr_stream.self). Calls for one stream are serialised, all others come from any thread:
 * a back end with a current device sets it in every call. A slot that returns an error code fills
 * st; st may be NULL. */
typedef struct mr_device_backend {
    uint32_t abi;     /* MR_DEVICE_ABI */
    uint32_t size;    /* sizeof(mr_device_backend) */
    const char *kind; /* the name before the colon: "cpu" */
    /* *count = the number of devices of this kind that can be opened. If it is 0, `why` receives
     * the reason, in words that follow "cuda: ", such as "no NVIDIA driver (libcuda.so.1 not
     * found)". Cheap after the first call; never prints. */
    void (*probe)(size_t *count, char *why, size_t size);
    /* Opens device `index` < count as *self. The caller owns nothing after a failure. The same
     * device may be opened several times. */
    mr_code (*open)(size_t index, void **self, mr_status *st);
    /* All streams, events and memory have been freed by then. */
    void (*close)(void *self);
    void (*properties)(void *self, mr_device_properties *out);
    /* Versions of the libraries that the back end uses; writes at most `room` entries and returns
     * their number. */
    size_t (*libraries)(mr_device_library *out, size_t room);
    /* *out is 64-byte aligned (256 for MR_MEMORY_DEVICE of GPUs); its contents are undefined; bytes
     * may be 0. stream NULL: usable by everything submitted from now on. Otherwise, only for
     * MR_MEMORY_DEVICE, the allocation is in stream order: usable by work submitted to that stream
     * from now on, and taken from a pool that asks the system for memory only when it grows.
     * errors MR_RESOURCE_EXHAUSTED */
    mr_code (*memory_alloc)(void *self, mr_memory kind, size_t bytes, void *stream, void **out,
                            mr_status *st);
    /* stream NULL: p is no longer in use. Otherwise p is freed when the work submitted to the
     * stream before this call has run. Both are allowed, however p was allocated. Cannot fail. */
    void (*memory_free)(void *self, mr_memory kind, void *p, void *stream);
    mr_code (*stream_new)(void *self, mr_stream_kind kind, void **out, mr_status *st);
    /* Waits until everything submitted has run, then frees. */
    void (*stream_free)(void *stream);
    mr_code (*event_new)(void *self, void **out, mr_status *st);
    void (*event_free)(void *event); /* streams may still have it ahead of them */
    /* These return at once; the work happens in stream order. src and dst may be of any memory
     * kind, also of another device of this kind; they must not overlap, and must stay valid until
     * the work is done. A copy from or to MR_MEMORY_HOST may wait for the stream. bytes > 0. */
    mr_code (*copy)(void *stream, void *dst, const void *src, size_t bytes, mr_status *st);
    /* Fills device memory with a byte. bytes > 0. */
    mr_code (*set)(void *stream, void *dst, int byte, size_t bytes, mr_status *st);
    /* fn must not call device functions, nor wait for a device. After a sticky error it may never
     * run, so code that waits for it must also check stream_status. */
    mr_code (*host_call)(void *stream, mr_stream_fn fn, void *ctx, mr_status *st);
    /* Runs fn on a copy of args[0..size) in stream order; fn may access device memory. NULL:
     * kernels of this kind are not host functions. size <= MR_KERNEL_ARGS. */
    mr_code (*launch)(void *stream, mr_kernel_fn fn, const void *args, size_t size, mr_status *st);
    mr_code (*record)(void *stream, void *event, mr_status *st);
    /* The stream continues when the event's last record before this call has been reached; at once
     * if it was never recorded. The event may be of another device of this kind. */
    mr_code (*wait)(void *stream, void *event, mr_status *st);
    /* Host side: wait for the last record so far; query whether it has been reached (true if it was
     * never recorded, and after a sticky error). */
    mr_code (*event_synchronize)(void *event, mr_status *st);
    bool (*event_done)(void *event);
    /* Waits until everything submitted has run. Returns the stream's sticky error. */
    mr_code (*stream_synchronize)(void *stream, mr_status *st);
    /* The sticky error so far, without waiting. */
    mr_code (*stream_status)(void *stream, mr_status *st);
    /* The handle that user kernels are launched on: cudaStream_t. NULL: does not apply. */
    void *(*native_stream)(void *stream);
    const mr_math_table *math;
    /* Whether operations of this device may access the memory of another of this kind; copies
     * always may. NULL: they may. */
    bool (*reaches)(void *self, void *other);
    /* See mr_stream_repeat_begin. Both NULL: sections have no effect. */
    mr_code (*repeat_begin)(void *stream, uint64_t key, mr_status *st);
    mr_code (*repeat_end)(void *stream, mr_status *st);
    /* No more work follows for now: starts what was submitted. The calling thread may run some of
     * it, but waits for nothing. NULL: work starts when it is submitted. */
    void (*flush)(void *stream);
    /* Marks, in stream order, a step that a cancellation may drop; see trainer/device/drop.h. drop
     * and section are those of the beginning. NULL: all work runs. */
    mr_code (*section)(void *stream, mr_section_mark mark, mr_drop *drop, uint64_t section,
                       mr_status *st);
} mr_device_backend;

/* Registers a kind of device; the caller keeps b, which must outlive its use. "cpu" is always
 * registered.
 * errors   MR_FAILED_PRECONDITION: another ABI version · MR_ALREADY_EXISTS: the kind is known ·
 *          MR_INVALID_ARGUMENT: an incomplete table · MR_RESOURCE_EXHAUSTED: too many kinds */
MR_API mr_code mr_device_backend_register(const mr_device_backend *b, mr_status *st) MR_NODISCARD;

/* Calls fn("cpu", 2, "") for every known kind with the number of its devices and, if that is 0, the
 * reason. */
MR_API void mr_device_each(void (*fn)(void *ctx, const char *kind, size_t n, const char *why),
                           void *ctx);

/* Calls fn("cpu", "onednn", "2.6.3") for every library that the known kinds use. */
MR_API void mr_device_each_library(void (*fn)(void *ctx, const char *kind, const char *name,
                                              const char *version),
                                   void *ctx);

/* Opens "KIND:INDEX" ("cpu" alone is "cpu:0"). Returns owned.
 * errors   MR_INVALID_ARGUMENT: not of that form · MR_NOT_FOUND: no such kind or index here; lists
 *          the available ones, and why a kind is missing */
MR_API mr_code mr_device_open(mr_device **out, const char *name, mr_status *st) MR_NODISCARD;
MR_API void mr_device_close(mr_device *d);             /* NULL: nothing */
MR_API const char *mr_device_name(const mr_device *d); /* "cpu:0"; borrowed until close */
MR_API const char *mr_device_kind(const mr_device *d); /* "cpu"; static text */
/* Whether operations of d may access memory of the other device. */
MR_API bool mr_device_reaches(const mr_device *d, const mr_device *other);
MR_API void mr_device_describe(const mr_device *d, mr_device_properties *out);
/* The kind's operations; static. */
MR_API const mr_math_table *mr_device_math(const mr_device *d);

/* Memory of a kind, aligned for the device. Before freeing it, all submitted work that uses it must
 * have finished.
 * errors MR_RESOURCE_EXHAUSTED */
MR_API mr_code mr_device_alloc(mr_device *d, mr_memory kind, size_t bytes, void **out,
                               mr_status *st) MR_NODISCARD;
MR_API void mr_device_free(mr_device *d, mr_memory kind, void *p); /* p NULL: nothing */

/* A stream, as passed to the operations of the table. Its fields are for back ends. */
struct mr_stream {
    const mr_device_backend *backend;
    mr_device *device;
    void *self; /* the back end's handle */
};

/* Streams run their commands in order; events mark how far a stream has got. Return owned. */
MR_API mr_code mr_stream_new(mr_stream **out, mr_device *d, mr_stream_kind kind,
                             mr_status *st) MR_NODISCARD;
MR_API void mr_stream_free(mr_stream *s); /* runs submitted work first; NULL: nothing */
MR_API mr_code mr_event_new(mr_event **out, mr_device *d, mr_status *st) MR_NODISCARD;
/* Streams may still have it ahead of them, but no host thread may wait for it; NULL: nothing. */
MR_API void mr_event_free(mr_event *e);

/* Device memory in stream order, as described at memory_alloc and memory_free above. */
MR_API mr_code mr_stream_alloc(mr_stream *s, size_t bytes, void **out, mr_status *st) MR_NODISCARD;
MR_API void mr_stream_release(mr_stream *s, void *p); /* p NULL: nothing */

/* See the slots of the same name above; 0 bytes are allowed. */
MR_API mr_code mr_stream_copy(mr_stream *s, void *dst, const void *src, size_t bytes,
                              mr_status *st) MR_NODISCARD;
MR_API mr_code mr_stream_set(mr_stream *s, void *dst, int byte, size_t bytes,
                             mr_status *st) MR_NODISCARD;
MR_API mr_code mr_stream_host_call(mr_stream *s, mr_stream_fn fn, void *ctx,
                                   mr_status *st) MR_NODISCARD;
/* errors   MR_UNIMPLEMENTED: the device's kernels are not host functions */
MR_API mr_code mr_stream_launch(mr_stream *s, mr_kernel_fn fn, const void *args, size_t size,
                                mr_status *st) MR_NODISCARD;
MR_API mr_code mr_stream_record(mr_stream *s, mr_event *e, mr_status *st) MR_NODISCARD;
MR_API mr_code mr_stream_wait(mr_stream *s, mr_event *e, mr_status *st) MR_NODISCARD;
MR_API mr_code mr_stream_synchronize(mr_stream *s, mr_status *st) MR_NODISCARD;
MR_API mr_code mr_stream_status(mr_stream *s, mr_status *st) MR_NODISCARD;
MR_API void mr_stream_flush(mr_stream *s);
/* Inside a repeated section (below), call this again each time, just before the launch. */
MR_API void *mr_stream_native(mr_stream *s);
/* Work submitted between repeat_begin and repeat_end probably equals that of earlier sections with
 * this key. The result is the same as without the calls. A device may hold work back until the
 * section ends, or until something has to wait for it, and submit it as a unit: GPUs launch a CUDA
 * graph. Beginning a section ends the previous one; one thread at a time submits to the stream.
 * End the section also after an error: work submitted before the error runs.
 * errors   those of the work held back */
MR_API mr_code mr_stream_repeat_begin(mr_stream *s, uint64_t key, mr_status *st) MR_NODISCARD;
MR_API mr_code mr_stream_repeat_end(mr_stream *s, mr_status *st) MR_NODISCARD;
MR_API mr_code mr_event_synchronize(mr_event *e, mr_status *st) MR_NODISCARD;
MR_API bool mr_event_done(mr_event *e);

#ifdef __cplusplus
}
#endif
#endif
