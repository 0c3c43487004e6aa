/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TESTS_CUDA_DOUBLE_DOUBLE_H
#define MR_TESTS_CUDA_DOUBLE_DOUBLE_H
/* A double of what millrace-cuda.so uses of NVIDIA's libraries, over threads of the processor. It
 * computes what they compute, slowly, and is strict where they are not: each misuse ends the
 * process with a message.
 *
 * Each device's memory lies in an arena, mapped twice: programs hold addresses of the first
 * mapping, which is inaccessible; operations go through the second. Addresses are not used again.
 * Pinned memory has a separate arena, which the host may touch.
 *
 * Every operation has a vector clock: what of each stream is known to have run before it, by the
 * order of its stream, by events, and by what the host waited for. For each word of an arena it is
 * kept which operations wrote and read it last, so that two that touch a word without an order
 * between them are found, however they happened to run. Host threads count as one.
 *
 *     MR_DOUBLE_DEVICES   how many there are (4)
 *     MR_DOUBLE_FIRST     the number of the machine's GPU that is this process's first (0): two
 *                         processes whose GPUs are the same number share one
 *     MR_DOUBLE_DRIVER    the version of a driver that is too old
 *     MR_DOUBLE_MEMORY    MiB of each (4096)
 *     MR_DOUBLE_PEERS     0: devices cannot reach each other's memory
 *     MR_DOUBLE_DELAY     most microseconds that an operation is held up (100)
 *     MR_DOUBLE_FAIL      CALL:N: the n-th call of that function fails, "any:N" the n-th call of
 *                         all, "kernel:N" the n-th kernel while it runs
 *     MR_DOUBLE_COUNT     a file that gets the number of calls and of kernels at the end, and the
 *                         call that failed
 *     MR_TEST_SEED        of the delays and of the order of warps */
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "tests/cuda_double/warps.h"

enum { CD_DEVICES = 8, CD_SLOTS = 128, CD_PINNED = CD_DEVICES, CD_ARENAS };

/* ---- double.c: settings, failures, what is alive */

/* Counts a call of that name; is it to fail? A call from a function that a stream runs is misuse.
 */
bool cd_fails(const char *call);
bool cd_kernel_fails(void);
extern _Thread_local bool cd_in_host_call;

typedef struct cd_settings {
    int devices, first;
    bool peers;
    size_t memory;
    unsigned delay_us;
    uint64_t seed;
} cd_settings;
const cd_settings *cd_set(void);

/* Objects that are to be gone at the end. */
typedef enum cd_kind {
    CD_STREAM,
    CD_EVENT,
    CD_BLAS,
    CD_PRODUCT,
    CD_LAYOUT,
    CD_PREFERENCE,
    CD_DNN,
    CD_TENSOR,
    CD_FILTER,
    CD_CONVOLUTION,
    CD_COMM,
    CD_GRAPH,
    CD_GRAPH_EXEC,
    CD_N_KINDS
} cd_kind;

/* An object of `bytes`, zeroed, which begins with a cd_head. */
typedef struct cd_head {
    cd_kind kind;
    uint32_t alive;
} cd_head;
void *cd_new(cd_kind kind, size_t bytes);
/* Misuse unless p is a living object of that kind. */
void cd_check(cd_kind kind, const void *p, const char *call);
void cd_drop(cd_kind kind, void *p, const char *call);
/* The same for an object that is freed elsewhere. */
void cd_retire(cd_kind kind, void *p, const char *call);

/* ---- stream.c: streams, events, operations */

/* Guards everything of streams, clocks and memory but the words' own epochs. */
extern pthread_mutex_t cd_lock;
extern pthread_cond_t cd_moved; /* an operation has ended */

typedef struct cd_clock {
    uint32_t at[CD_SLOTS];
} cd_clock;

typedef struct cd_op cd_op;
typedef void cd_run(cd_op *op);
struct cd_op {
    cd_op *next;
    const char *name;
    cd_run *run;
    void (*drop)(cd_op *op); /* of what the operation holds; NULL: nothing */
    cudaStream_t stream;
    int device;
    uint32_t epoch; /* slot << 24 | number in the stream */
    cd_clock clock;
    size_t bytes; /* of the payload */
    _Alignas(16) char payload[];
};

/* The operation that this thread runs. */
extern _Thread_local cd_op *cd_running;

/* A new operation of a stream, to be filled; and its submission. */
cd_op *cd_op_new(cudaStream_t s, const char *name, cd_run *run, size_t payload);
void cd_submit(cd_op *op);
/* The same for another stream; NULL: for none yet, in a graph. */
cd_op *cd_op_copy(const cd_op *op, cudaStream_t s);
/* With cd_lock held; gives the operation's epoch. */
uint32_t cd_submit_locked(cd_op *op);

/* From begin to end, operations that this thread submits to s are kept for a graph; it calls
 * nothing that has to do with other streams or with memory. */
extern _Thread_local bool cd_capturing;
void cd_capture_begin(cudaStream_t s);
cd_op *cd_capture_end(cudaStream_t s);
/* The launch of a kernel; s NULL: as a node of the current device's. */
cd_op *cd_kernel_op(cudaStream_t s, const void *kernel, dim3 grid, dim3 block, void **args,
                    size_t shared);

/* What s gets from now on comes after op; cd_lock is held. */
void cd_stream_follows(cudaStream_t s, const cd_op *op);
int cd_stream_device(cudaStream_t s, const char *call);
int cd_current_device(void);
cudaError_t cd_device_error(int device);
bool cd_any_device_error(void);
void cd_set_device_error(int device, cudaError_t e);
/* Before the process ends: the threads of destroyed streams, which a leak checker would find on
 * their way out. */
void cd_streams_end(void);
/* Waits until `done` is true of arg or the device has failed; cd_lock is held. */
void cd_wait_until(bool (*done)(void *arg), void *arg, int device);
cudaError_t cd_keep_error(cudaError_t e);

/* Was the operation of that epoch before op? */
static inline bool cd_before(uint32_t epoch, const cd_clock *c)
{
    return (epoch & 0xffffff) <= c->at[epoch >> 24];
}
/* What the host knows to have run. */
const cd_clock *cd_host_clock(void);

/* ---- memory.c */

/* NULL: no memory is left. */
void *cd_alloc(int arena, size_t bytes);
/* It exists from that operation on. */
void cd_born(const void *p, uint32_t epoch);
/* In the order of op; NULL: by the host, of pinned memory. */
void cd_free(void *p, const cd_op *op);
/* Misuse unless p is the beginning of a living block of that arena; what: "cudaFreeAsync". */
void cd_check_block(int arena, const void *p, const char *what);
/* It is freed by that operation, when that runs. */
void cd_freed(const void *p, uint32_t epoch);
/* Which arena an address lies in; -1: none, it is the host's own. */
int cd_arena_of(const void *p);
/* op reads or writes that; gives the address to do it by, for memory of the host's own the same. */
void *cd_reads(const cd_op *op, const void *p, size_t bytes);
void *cd_writes(const cd_op *op, void *p, size_t bytes);
/* The same, but `from` may be unwritten: `to` counts as written where `from` does. */
void cd_copy(const cd_op *op, void *to, const void *from, size_t bytes);
/* A word of a kernel's parameters as the kernel is to see it. */
uint64_t cd_translate(uint64_t word);
void cd_allow_peer(int owner, int other);
/* Bytes and blocks that are still there, pinned ones included. */
size_t cd_left(size_t *blocks);

/* ---- sanitizers.c: without a sanitizer in the program none of these does anything */

bool cd_races_are_watched(void);
/* What this thread has done happens before what follows cd_tell_after of that address. */
void cd_tell_done(const void *at);
void cd_tell_after(const void *at);
/* This thread reads or writes that, in the mapping that operations go through. */
void cd_tell_access(const void *p, size_t bytes, bool write);
/* The host must not touch that, or may again. */
void cd_tell_unusable(const void *p, size_t bytes, bool unusable);
#endif
