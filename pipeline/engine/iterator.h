/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_ENGINE_ITERATOR_H
#define MR_PIPELINE_ENGINE_ITERATOR_H
/* Running a dataset: one pass (or several, mr_iterator_rewind) over its elements, in blocks.
 *
 *     mr_iterator *it = NULL;
 *     mr_block b = MR_BLOCK_EMPTY;
 *     mr_code rc = mr_iterator_open(&it, ds, NULL, &st);
 *     while (rc == MR_OK && (rc = mr_iterator_next(it, 1, &b, &st)) == MR_OK)
 *         use(mr_block_column(&b, "label"));
 *     mr_block_reset(&b);
 *     mr_iterator_close(it);            rc is MR_END, or an error that st describes
 *
 * An error occupies one position in the order: the rows before it are delivered first, then the
 * error is returned once, and the next call continues after it if the op can. An error that belongs
 * to no element (mr_status_is_of_no_element) ends the pass: it is returned once, then MR_END. A
 * position saved after it is that of the last block delivered, so that a restored iterator tries
 * again. Only a lack of memory (sys_errno ENOMEM) does not end the pass. MR_END is sticky.
 *
 * After fork, an iterator works only in the process that opened it. In the child every function
 * with a status fails with MR_FAILED_PRECONDITION, statistics are empty, and mr_iterator_close
 * returns at once; most of the iterator's memory and its files remain until the child ends or calls
 * exec. The parent's iterator is not affected. Datasets and blocks work in both processes, and so
 * do iterators that the child opens.
 *
 * thread   one at a time per iterator; mr_iterator_cancel from any
 * since    0.1 */
#include "../wait/cancel.h"
#include "../graph/dataset.h"
#include "../formats/ledger/ledger.h"
#include "../memory/block.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_iterator mr_iterator;
typedef struct mr_executor mr_executor;

/* A pool of threads for the tasks of iterators. n_threads 0: everything runs in the calling thread,
 * in one fixed order. If the system refuses threads, the pool has fewer and a warning is logged.
 * errors   MR_INVALID_ARGUMENT: n_threads is not 0 to 1024; MR_RESOURCE_EXHAUSTED: out of memory */
MR_API mr_code mr_executor_new(int n_threads, mr_executor **out, mr_status *st) MR_NODISCARD;
MR_API int mr_executor_threads(const mr_executor *ex); /* number of its threads */
MR_API void mr_executor_free(mr_executor *ex); /* after all iterators that use it are closed; in a
                                                  forked child of its process it does nothing */

/* The number of processors that this thread may use: by its affinity and by the control group's
 * cpu.max, rounded up; at least 1. since 0.2 */
MR_API int mr_usable_cpus(void);

/* The largest mr_iterator_opts.remote_connections. */
#define MR_REMOTE_CONNECTIONS 256

/* What mr_iterator_restore does with a position of another graph. */
typedef enum mr_on_mismatch {
    MR_REFUSE_MISMATCH, /* fails */
    MR_RESTORE_BY_NAME  /* the graphs may differ in the sources and weights of mix: each source
                           continues where the position has its name, new ones begin at their
                           beginning, and the places of removed ones are kept in later positions.
                           Each difference is logged as a warning */
} mr_on_mismatch;

struct mr__iterator_internal;

/* Pointers are borrowed until the iterator is closed, unless a field says otherwise. */
typedef struct mr_iterator_opts {
    /* ---- threads and blocks ---- */
    mr_executor *executor; /* NULL: a separate one, started when an op first needs it */
    int64_t threads;       /* of the separate executor; with has_threads, 0 means none. Unset: the
                              number of CPUs that this process may use */
    bool has_threads;
    mr_tri deterministic; /* overrides with_options of the graph */
    int64_t block_rows;   /* maximum number of rows in a block; 0: limited by size only */

    /* ---- random draws ---- */
    uint64_t seed; /* with has_seed: unseeded random ops draw from it instead of a fresh seed */
    bool has_seed;

    /* ---- contents of blocks ---- */
    bool positions;  /* positions, which mr_iterator_save needs */
    bool identities; /* the origin of each row (mr_identity). It is the same for any number of
                          threads and any block size, and after mr_iterator_restore of a position
                          that was saved with identities */
    mr_on_mismatch on_mismatch; /* since 0.2 */
    mr_ledger *ledger; /* every delivered row becomes an entry, if this is a ledger of elements; one
                          of steps is for a distributed iterator. Implies identities. NULL: none */

    /* ---- files ---- */
    const char *directory; /* where relative file names are looked up; NULL: the process's working
                              directory */
    bool no_uring;         /* read files with pread only */
    void (*on_read)(void *ctx, size_t bytes); /* called for every piece read from a file, with its
                                                 size in the file; from any thread; NULL: none */
    void *on_read_ctx;

    /* ---- URLs; each overrides with_options of the graph. since 0.2 ---- */
    int64_t remote_connections; /* maximum number of connections to a host, and number of ranges
                                   of a file read at once (at most 64): 1 to MR_REMOTE_CONNECTIONS.
                                   All iterators of the process share the connections; the one that
                                   last set a number decides. 0: up to 64 connections and 16 ranges,
                                   chosen while reading */
    int64_t remote_read_ahead;  /* bytes of a file that are requested before they are needed, at
                                   least 64 KiB; less under a memory limit. 0: chosen while
                                   reading */

    /* ---- stopping ---- */
    mr_cancel *cancel; /* when triggered, every wait ends with MR_CANCELLED; a reference is kept.
                          NULL: only mr_iterator_cancel stops the iterator */

    /* ---- memory ---- */
    int64_t memory_limit; /* maximum resident bytes of this process; overrides with_options of the
                             graph. 0: that of the graph, or else nine tenths of the control group's
                             memory.max, which never refuses a graph and also applies instead of a
                             higher limit; negative: MR_INVALID_ARGUMENT */
    int64_t memory_slots; /* batches that the consumer keeps in its slots; a limit must leave room
                             for them */
    int64_t
        memory_taken;    /* bytes that the consumer uses itself; a limit must leave room for them */
    bool memory_follows; /* set for a later run of the same job (evaluation after training): memory
                             that the process gained since the first limited run is not counted
                             against the limit; it reduces read-ahead instead */

    /* ---- observing ---- */
    size_t trace_spans; /* maximum number of spans kept for mr_iterator_trace, 32 bytes each; 0: no
                           trace */
    bool watch;         /* let `millrace top PID` of the same user or of root observe the iterator.
                           One sleeping thread serves all such iterators of a process. If it is
                           unavailable, a warning is logged */

    const struct mr__iterator_internal *internal; /* set by Millrace's own layers; else NULL */
} mr_iterator_opts;

/* Opens an iterator, positioned before the first element of ds; it keeps a reference to ds. opts
 * NULL: all defaults.
 * errors   the error that ds carries; errors of its ops while they open; MR_INVALID_ARGUMENT: a
 *          memory_limit below mr_memory_needed. After an error *out is unchanged */
MR_API mr_code mr_iterator_open(mr_iterator **out, mr_dataset *ds, const mr_iterator_opts *opts,
                                mr_status *st) MR_NODISCARD;

/* *bytes = the smallest memory_limit with which ds can run: the memory that the process uses now,
 * blocks in flight, file buffers, elements held by ops, and the consumer's slots. It depends on the
 * graph and on the number of threads, memory_slots and memory_taken in opts (NULL: the defaults).
 * *unknown = the name (static) of an op that holds elements whose size the graph does not
 * determine, and which *bytes does not include; NULL: no such op. Under a limit, such an op fails
 * with MR_RESOURCE_EXHAUSTED when the memory for it is used up.
 * errors   the error that ds carries */
MR_API mr_code mr_memory_needed(const mr_dataset *ds, const mr_iterator_opts *opts, int64_t *bytes,
                                const char **unknown, mr_status *st) MR_NODISCARD;

/* For the consumer's own buffers: reserves up to `most` bytes of the memory left by the limit,
 * until the iterator is closed. Returns the number reserved; without a limit, `most`.
 * thread   any */
MR_API int64_t mr_iterator_take_memory(mr_iterator *it, int64_t most);
/* The same in batches: reserves memory for up to `most` more batches and returns their number;
 * without a limit, `most`; 0 if the types do not determine the size of a batch. thread any */
MR_API int64_t mr_iterator_take_slots(mr_iterator *it, int64_t most);
/* true: the consumer may queue about `bytes` more of the blocks it received; false: the process has
 * reached its memory limit. thread any */
MR_API bool mr_iterator_has_memory(mr_iterator *it, size_t bytes);

/* MR_OK if the iterator works in this process. since 0.2
 * errors   MR_FAILED_PRECONDITION: it was opened before the fork that made this process */
MR_API mr_code mr_iterator_check(const mr_iterator *it, mr_status *st) MR_NODISCARD;

/* Up to `want` (at least 1) next elements into *b, whose earlier content is released.
 * returns  MR_OK with 1..want rows, MR_END, or an error, which is reported once */
MR_API mr_code mr_iterator_next(mr_iterator *it, size_t want, mr_block *b,
                                mr_status *st) MR_NODISCARD;

/* Starts the next pass. State that lasts across epochs is kept (shuffle's generator, a memory
 * cache). If that fails, the iterator rests. */
MR_API mr_code mr_iterator_rewind(mr_iterator *it, mr_status *st) MR_NODISCARD;

/* Ends the pass, and then the threads of its separate executor; closes its files and connections.
 * What lasts across epochs is kept until mr_iterator_rewind or mr_iterator_restore starts a pass
 * again, with new threads. Until then mr_iterator_next fails with MR_FAILED_PRECONDITION, and
 * mr_iterator_save returns the position after the last element delivered. Resting again does
 * nothing. It also ends what mr_iterator_cancel did, but not a cancellation of opts.cancel: after
 * MR_CANCELLED save, rest and restore continue where the wait began. since 0.2 */
MR_API mr_code mr_iterator_rest(mr_iterator *it, mr_status *st) MR_NODISCARD;

/* The state after the last element delivered, for mr_iterator_restore on an iterator of an equal
 * graph, in any process. Needs opts.positions. bytes owned: mr_free.
 * errors   MR_FAILED_PRECONDITION: opened without positions, or an op that cannot save */
MR_API mr_code mr_iterator_save(mr_iterator *it, void **bytes, size_t *size,
                                mr_status *st) MR_NODISCARD;
/* The same after row `rows` (0..b->rows) of the block delivered last. Where the graph would not
 * produce the same rows again (deterministic=false, a generator without a position), the rows of b
 * that follow are part of the position. */
MR_API mr_code mr_iterator_save_at(mr_iterator *it, const mr_block *b, size_t rows, void **bytes,
                                   size_t *size, mr_status *st) MR_NODISCARD;
/* Continues from a saved position; `it` may have been used already.
 * errors   MR_INVALID_ARGUMENT: not a position, damaged, or of another graph (names the first
 *          difference); `it` is then at an unspecified place and must be closed */
MR_API mr_code mr_iterator_restore(mr_iterator *it, const void *bytes, size_t size,
                                   mr_status *st) MR_NODISCARD;

/* Ends every wait of the iterator with MR_CANCELLED, now and until mr_iterator_rest or
 * mr_iterator_resume. thread any, also a signal handler */
MR_API void mr_iterator_cancel(mr_iterator *it);
/* Ends what mr_iterator_cancel did and continues after the last element delivered. What comes from
 * outside the process (a pipe, a generator, a data service) is not opened again: it continues where
 * the wait began. Other inputs are read again, as by save, rest and restore. It may be called again
 * after MR_CANCELLED. Not after a cancellation of opts.cancel. since 0.2
 * errors   as mr_iterator_save and mr_iterator_restore */
MR_API mr_code mr_iterator_resume(mr_iterator *it, mr_status *st) MR_NODISCARD;
/* Cancels, joins what was started, frees. NULL: nothing. */
MR_API void mr_iterator_close(mr_iterator *it);

/* Serializes a block with any columns, in the form that positions use, and reads it back; its
 * elements must be of `spec`. bytes owned: mr_free.
 * errors   MR_INVALID_ARGUMENT: malformed bytes; MR_RESOURCE_EXHAUSTED */
MR_API mr_code mr_block_to_bytes(const mr_block *b, void **bytes, size_t *size,
                                 mr_status *st) MR_NODISCARD;
MR_API mr_code mr_block_from_bytes(const void *bytes, size_t size, const mr_spec *spec, mr_block *b,
                                   mr_status *st) MR_NODISCARD;

/* Spec of its elements; borrowed until close. */
MR_API const mr_spec *mr_iterator_spec(const mr_iterator *it);

/* Statistics of an op since the iterator was opened. */
typedef struct mr_op_stats {
    const char *op, *path; /* valid until close */
    int64_t elements, bytes;
    double busy_seconds; /* in the op's own code, opening included, on any thread; processor time
                            where the run has threads, else elapsed time */
    double wait_seconds; /* asleep: until a task, a file, a pipe or a producer is ready */
    int64_t blocks;      /* number of blocks that contained the elements */
    /* In its queues now: read ahead, or in calls in progress. The elements of a block count until
     * all of them are taken. Bytes are those of values, if the op bounds them; else 0. */
    int64_t queued_elements, queued_blocks, queued_bytes;
    int64_t room_elements, room_blocks; /* capacity of the queues; 0: not bounded that way */
    int64_t dropped;                    /* failed elements that it left out (ignore_errors) */
} mr_op_stats;
/* Fills up to `capacity` entries, sink first; returns the total number of ops. Each op is followed
 * by those below it: first the ops of the datasets that its function made, added up, as in
 * "batch/flat_map/(f)/tfrecord", then its inputs. No time is counted twice. thread any */
MR_API size_t mr_iterator_stats(mr_iterator *it, mr_op_stats *out, size_t capacity);

/* The current value of a parameter that the graph leaves to the engine (auto). To pin it, write
 * into the graph `chosen` for num_parallel_calls, and for buffer_size the number of elements in
 * `chosen` blocks. The elements and their order are the same. */
typedef struct mr_op_tuning {
    const char *op, *path; /* as in mr_op_stats; valid until close */
    const char *parameter; /* "num_parallel_calls": calls at once; "buffer_size" of prefetch: the
                              maximum number of blocks read ahead, although the parameter of the
                              graph counts elements */
    int64_t chosen;
    double service_seconds;  /* time per block in the op, a moving average; 0: not known yet */
    double interval_seconds; /* the consumer's own work between two blocks; 0: not known yet */
} mr_op_tuning;
/* Fills up to `capacity` entries in the order of mr_iterator_stats; returns the total number. If a
 * function makes several datasets, the entry is of the last one run. Returns 0 without threads:
 * nothing is tuned then. thread any */
MR_API size_t mr_iterator_tuning(mr_iterator *it, mr_op_tuning *out, size_t capacity);

/* A span of time in which an op worked, or waited. A span of work includes the work of the ops
 * below it in the same thread, and the waits within it. */
typedef struct mr_op_span {
    const char *op, *path; /* as in mr_op_stats */
    int thread;            /* thread id of the kernel (gettid) */
    bool waiting;
    double begin_seconds; /* after the opening of the iterator */
    double seconds;
} mr_op_span;
/* Fills up to `capacity` of the spans that have ended, in no particular order; returns their
 * total number, which is 0 without opts.trace_spans. *left_out: if more than opts.trace_spans
 * ended, spans shorter than this many seconds were dropped; else 0. thread any */
MR_API size_t mr_iterator_trace(mr_iterator *it, mr_op_span *out, size_t capacity,
                                double *left_out);
/* The time of second 0 of the spans, in seconds of CLOCK_MONOTONIC. thread any */
MR_API double mr_iterator_trace_begin(const mr_iterator *it);

#ifdef __cplusplus
}
#endif
#endif
