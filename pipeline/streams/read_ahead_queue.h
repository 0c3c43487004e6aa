/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_STREAMS_READ_AHEAD_QUEUE_H
#define MR_PIPELINE_STREAMS_READ_AHEAD_QUEUE_H
/* A queue of rows that an op has pulled and not yet delivered, and the position that results.
 *
 *     input --pull--> [position | rows, errors] [position | rows] [position | error] --> op
 *                       ^at, error_at: taken                                ended
 *
 * An event is a row or an error. A failed allocation and a cancellation are not events: they have
 * no position, nothing was taken from the input, and a retry may succeed. An entry is the result of
 * one pull: rows, possibly with errors among them (of a function that the op runs over them), or
 * one error in place of rows.
 *
 * Position. An entry keeps the input's position before its pull, so queued rows need not be saved:
 * the op's position is the position of the oldest entry and the number of its events that were
 * taken. Restoring reads these events again and skips them (`skip`). If the input cannot be
 * produced again, if pulling again would count (mr_iter_pulls_count), or if positions were not
 * kept, the entries themselves are saved.
 *
 * Who pulls. The consumer fills a queue opened by mr__queue_open, either when it is empty
 * (mr__queue_front, mr__queue_next) or at any time (mr__queue_pull). A task also fills a queue
 * opened by mr__queue_open_ahead: the input then belongs to that task (the fill) while it is queued
 * or running, and to the consumer otherwise. A consumer that finds the queue empty withdraws a fill
 * that no thread has started and pulls itself, so it never waits for a free thread.
 *
 * Tasks of entries. A client may let a task process an entry (the entry's `task`, from `in` to
 * `rows` and `errors`); until the task is done nothing else accesses the entry. `begin` starts it
 * for each entry with rows as soon as it is pulled, also by the fill.
 *
 * Zeroed memory is a queue that was never opened; it may be reset.
 *
 * thread   one consumer at a time; only the fill runs concurrently with it */
#include <pthread.h>

#include "pipeline/engine/auto_parallelism.h"
#include "pipeline/engine/executor.h"
#include "pipeline/engine/statistics.h"
#include "pipeline/engine/block_size_tuner.h"

typedef struct mr__queue mr__queue;

typedef struct mr__entry mr__entry;
struct mr__entry {
    mr__entry *next;
    mr__queue *queue;
    mr_block rows;
    mr_row_errors errors;  /* among the rows, counted as for mr_iter_emit */
    size_t at, error_at;   /* rows and errors taken */
    mr_code rc;            /* not MR_OK: an error in place of rows */
    mr_status *error;      /* its details; NULL: the allocation failed */
    mr_buffer *position;   /* the input's, before the pull; NULL: not kept, or not repeatable */
    size_t counted, bytes; /* in the queue's counts: rows; payload bytes if the queue is tuned */
    size_t shown;          /* rows in the statistics */
    size_t ahead;          /* bytes counted as read ahead for the memory limit */
    /* for the client's tasks */
    mr__task task;
    mr_block in;
    size_t asked, row_bytes;
    double seconds;
};

/* How far the fill reads ahead: at least `least` entries, and more while below all other limits.
 * most: if not 0, `entries` and `bytes` are initial values, which are tuned (auto_parallelism.h) in
 * proportion, for `least` to `most` entries. */
typedef struct mr__ahead {
    size_t least, entries, rows, bytes, most;
} mr__ahead;

struct mr__queue {
    mr_iter *it;    /* the op */
    mr_iter *input; /* the iterator that is pulled */
    bool positions; /* entries keep positions; set by open, the client may clear it */
    bool gives_way; /* queued rows count as read ahead for the memory limit; set after opening by
                       clients that can do without read-ahead */
    mr__entry *head, *tail, *spare;
    size_t skip; /* rows, and errors among rows, already taken from the head or, in an empty queue,
                    from the next pull. An error of the input in their place has no position: it did
                    not occur the first time */
    void (*begin)(mr__queue *q, mr__entry *e); /* NULL: entries have no tasks */
    size_t (*ask)(const mr__queue *q); /* rows that the fill requests; NULL: as its tuner says */
    size_t gap; /* after them: events of an empty queue's input to drop, including its errors */
    bool ended; /* nothing follows the tail */
    /* for the fill */
    mr_executor *executor;      /* NULL: no fill */
    mr__ahead ahead;            /* the client may change it while no fill is queued or running */
    mr__auto_parallelism depth; /* tunes ahead.entries */
    bool tuned;                 /* opened by mr__queue_open_ahead, with or without threads */
    mr__block_size_tuner tuner;
    mr__task fill;
    bool blocking;
    unsigned cheap;      /* consecutive pulls by the consumer that were faster than a wake-up */
    atomic_uint changes; /* counts entries pushed and fills ended, for mr__wait_while */
    bool has_lock;
    pthread_mutex_t lock;  /* with a fill: guards head, tail, spare, ended and the fields below */
    size_t n, rows, bytes; /* queued; an error counts as a row */
    size_t room_blocks, room_rows; /* in the statistics */
    bool waiting;                  /* the consumer sleeps */
    bool filling;                  /* a fill is queued or runs */
    mr_buffer *pulling;            /* the position of the entry that it pulls; NULL: none is kept */
    bool was_full;                 /* since the consumer last found it empty */
    bool stop;                     /* the fill ends after the current entry */
};

/* Announces that the results of e's task will take `bytes` bytes, which count as read ahead until e
 * is taken. */
void mr__queue_expect(const mr__queue *q, mr__entry *e, size_t bytes);
/* Opens an empty queue over `input` (borrowed until mr__queue_clear or _reset). A cleared queue may
 * be opened again. */
void mr__queue_open(mr__queue *q, mr_iter *it, mr_iter *input);
/* The same with a fill in `executor` (NULL, or one without threads: no fill). `tuner` decides how
 * many rows the fill requests, and learns from every pull. */
mr_code mr__queue_open_ahead(mr__queue *q, mr_iter *it, mr_iter *input, mr_executor *executor,
                             const mr__ahead *ahead, mr_status *st) MR_NODISCARD;
/* Changes ahead.entries, also while the fill runs. */
void mr__queue_resize(mr__queue *q, size_t entries);
/* true: there is an entry, whose task may still run. */
bool mr__queue_has_entry(mr__queue *q);
/* The entry after e; NULL: none. */
mr__entry *mr__queue_after(mr__queue *q, const mr__entry *e);
/* Waits for the fill, or pulls up to `want` rows, unless there is an entry: MR_OK, MR_END, or an
 * error without a position. */
mr_code mr__queue_need(mr__queue *q, size_t want, mr_status *st) MR_NODISCARD;
/* Moves the first entry whose task is done to the front, if that of the head is not. */
void mr__queue_choose(mr__queue *q);
/* Withdraws or awaits all tasks and drops the entries; keeps their memory for later ones. */
void mr__queue_clear(mr__queue *q);
/* The same, and frees everything. */
void mr__queue_reset(mr__queue *q);

/* Pulls `want` rows into a new entry at the tail (*e, may be NULL). destination (block.h) may be
 * NULL. Must not be called while a fill is queued or running.
 * returns  MR_OK (also with an error in the entry), MR_END, or an error without a position: no
 *          entry is added */
mr_code mr__queue_pull(mr__queue *q, size_t want, const mr_destination *destination, mr__entry **e,
                       mr_status *st) MR_NODISCARD;
/* Puts rows that were taken back into the empty queue, before what is pulled next; they are moved.
 * Must not be called while a fill is queued or running. */
mr_code mr__queue_put_back(mr__queue *q, mr_block *rows, mr_status *st) MR_NODISCARD;
/* The oldest entry once its task is done; NULL: the queue is empty. */
mr__entry *mr__queue_wait(mr__queue *q);
/* The oldest entry once its task is done, without the events to skip; NULL: none is left. Drops
 * entries that were taken completely. */
mr__entry *mr__queue_head(mr__queue *q);
/* The same, but pulls up to `want` rows if there is no entry: MR_OK, MR_END, or an error without a
 * position. want 0, only for a queue opened by mr__queue_open_ahead: its tuner decides. */
mr_code mr__queue_front(mr__queue *q, size_t want, const mr_destination *destination, mr__entry **e,
                        mr_status *st) MR_NODISCARD;
/* Delivers up to `want` rows of the head, which must have an event, or the error that comes
 * next. */
mr_code mr__queue_deliver(mr__queue *q, size_t want, mr_block *out, mr_status *st) MR_NODISCARD;
/* mr__queue_front and mr__queue_deliver in one; rows pulled here are delivered at once, so they
 * need no position. */
mr_code mr__queue_next(mr__queue *q, size_t want, mr_block *out, mr_status *st) MR_NODISCARD;
/* Drops n events: of the entries, and then of the rows pulled next (`gap`). */
void mr__queue_drop(mr__queue *q, size_t n);
/* Takes the error in place of the head's rows: copies it and returns its code. A permanent one of
 * no element stays the head. */
mr_code mr__queue_take_error(mr__queue *q, mr_status *st) MR_NODISCARD;

/* Submits the fill if there is room and a task is worth its cost. */
void mr__queue_start(mr__queue *q);
/* true: the fill is queued or running. */
bool mr__queue_filling(const mr__queue *q);

/* true: nothing is queued, to be dropped or being pulled: the consumer may skip elements of the
 * input. */
bool mr__queue_idle(const mr__queue *q);

/* Events of e that were not taken. */
size_t mr__entry_left(const mr__entry *e);
/* Puts an error in place of e's rows. */
void mr__entry_fail(mr__entry *e, mr_code rc, const mr_status *error);
/* Removes that error, for a retry: copies it and returns its code. */
mr_code mr__entry_retry(mr__entry *e, mr_status *st) MR_NODISCARD;

/* The state:
 *   where   0: the input's state follows, as of the tail; 1: the head's position (bytes)
 *   skip, gap
 *   n       number of saved entries (0 if `where` is 1), each
 *             its code; if MR_OK: the rows left (block), number of errors, (place, status)...;
 *             else the status
 * taken: further events of the head to count as taken.
 * The end is not saved: the input reports it again. */
mr_code mr__queue_save(mr__queue *q, size_t taken, mr_state_w *w, mr_status *st) MR_NODISCARD;
/* spec: that of the entries' rows. After a failure the queue may only be cleared or restored again.
 */
mr_code mr__queue_restore(mr__queue *q, const mr_spec *spec, mr_state_r *r,
                          mr_status *st) MR_NODISCARD;

/* Reopens input i at a position from mr_iter_position; for ops that keep the position of their
 * start. */
mr_code mr__reopen_at(mr_iter *it, size_t i, const void *position, size_t n,
                      mr_status *st) MR_NODISCARD;
#endif
