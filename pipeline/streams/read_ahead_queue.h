/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_STREAMS_READ_AHEAD_QUEUE_H
#define MR_PIPELINE_STREAMS_READ_AHEAD_QUEUE_H
/* What an op has pulled and not yet delivered, and the position that this amounts to.
 *
 *     input --pull--> [position | rows, errors] [position | rows] [position | error] --> op
 *                       ^at, error_at: taken                                ended
 *
 * An event is a row or an error. A lack of memory and a cancellation are no events: they are of no
 * place, nothing was taken from the input, and another try may not meet them. An entry is what one
 * pull gave: rows, among which errors may stand (of a function that the op runs over them), or one
 * error in place of rows.
 *
 * Position. An entry keeps the input's position before its pull. What is queued is then no part of
 * the op's position: that is the position of the oldest entry, and how many events of it were
 * taken. Restoring reads them again and skips them (`skip`). Where the input cannot be produced
 * again, where that would count (mr_iter_pulls_count), or where positions were not kept, the
 * entries themselves are saved.
 *
 * Who pulls. A queue opened by mr__queue_open is filled by the consumer, when it is empty
 * (mr__queue_front, mr__queue_next) or as the consumer likes (mr__queue_pull). One opened by
 * mr__queue_open_ahead is also filled by a task: the input then belongs to whoever runs the fill,
 * the task while it is queued or running, the consumer otherwise. A consumer that finds the queue
 * empty takes a task that no thread has begun back and pulls for itself, so nothing ever waits for
 * a thread to become free.
 *
 * Tasks of entries. A client may let a task work at an entry (its own `task`, from `in` to `rows`
 * and `errors`); until it is done nothing else looks at the entry.
 *
 * Zeroed memory is a queue that was never opened; resetting it is fine.
 *
 * thread   the consumer is one at a time; only the fill runs beside it */
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
    mr_row_errors errors;  /* among rows, counted as for mr_iter_emit */
    size_t at, error_at;   /* rows and errors taken */
    mr_code rc;            /* not MR_OK: an error in place of rows */
    mr_status *error;      /* its text; NULL: there was no memory for it */
    mr_buffer *position;   /* the input's before it; NULL: not kept, or it cannot be read again */
    size_t counted, bytes; /* in the queue's counts: rows; payload, where the queue is tuned */
    size_t shown;          /* rows in the statistics */
    size_t ahead;          /* bytes that count as read ahead for the memory limit */
    /* of the client's tasks */
    mr__task task;
    mr_block in;
    size_t asked, row_bytes;
    double seconds;
};

/* How far ahead the fill reads: `least` entries in any case, more while below all of the others.
 * most (0: the depth is not tuned): `entries` and `bytes` are where it starts; both are tuned
 * (auto_parallelism.h) for between `least` and `most` entries, in proportion. */
typedef struct mr__ahead {
    size_t least, entries, rows, bytes, most;
} mr__ahead;

struct mr__queue {
    mr_iter *it;    /* the op */
    mr_iter *input; /* what is pulled */
    bool positions; /* entries keep them; set by open, the client may clear it */
    bool gives_way; /* what is queued counts as read ahead for the memory limit; set by the client
                       after opening, where it can do without */
    mr__entry *head, *tail, *spare;
    size_t skip; /* rows, and errors among rows, that were taken of what is at the head or, in an
                    empty queue, of what is pulled next. An error that the input has in their place
                    is of no place: it was not there the first time */
    size_t gap;  /* after them: events of an empty queue's input to drop, its errors too */
    bool ended;  /* nothing follows the tail */
    /* of the fill */
    mr_executor *executor;      /* NULL: there is none */
    mr__ahead ahead;            /* the client may change it while nothing fills */
    mr__auto_parallelism depth; /* of ahead.entries */
    bool tuned;                 /* opened by mr__queue_open_ahead, with or without threads */
    mr__block_size_tuner tuner;
    mr__task fill;
    bool blocking;
    unsigned cheap;      /* pulls by the consumer in a row that took less than a wake-up would */
    atomic_uint changes; /* counts entries pushed and fills ended, for mr__wait_while */
    bool has_lock;
    pthread_mutex_t lock;  /* with a fill, guards head, tail, spare, ended and what follows */
    size_t n, rows, bytes; /* queued; an error counts as a row */
    size_t room_blocks, room_rows; /* in the statistics */
    bool waiting;                  /* the consumer sleeps */
    bool filling;                  /* a fill is queued or runs */
    bool was_full;                 /* since the consumer last found it empty */
    bool stop;                     /* the fill ends after the entry it is at */
};

/* What a task makes of e will take so many bytes, which count as read ahead until e is taken. */
void mr__queue_expect(const mr__queue *q, mr__entry *e, size_t bytes);
/* Starts an empty queue over `input` (borrowed until mr__queue_clear or _reset), which may have
 * been open before over another one that was cleared. */
void mr__queue_open(mr__queue *q, mr_iter *it, mr_iter *input);
/* The same with a fill in `executor` (NULL, or one without threads: no fill). `tuner` says what the
 * fill asks for and learns from every pull. */
mr_code mr__queue_open_ahead(mr__queue *q, mr_iter *it, mr_iter *input, mr_executor *executor,
                             const mr__ahead *ahead, mr_status *st) MR_NODISCARD;
/* Says in the statistics how much the queue may hold; 0 or SIZE_MAX: not bounded that way. */
void mr__queue_show_room(mr__queue *q, size_t blocks, size_t rows);
/* Withdraws and ends all tasks and forgets the entries; memory is kept for the next ones. */
void mr__queue_clear(mr__queue *q);
/* The same, and frees everything. */
void mr__queue_reset(mr__queue *q);

/* Pulls `want` rows into a new entry at the tail (*e, may be NULL). destination (block.h) may be
 * NULL. Not with a fill under way.
 * returns  MR_OK (also with an error in the entry), MR_END, or an error of no place: no entry */
mr_code mr__queue_pull(mr__queue *q, size_t want, const mr_destination *destination, mr__entry **e,
                       mr_status *st) MR_NODISCARD;
/* The oldest entry once its task is done; NULL: the queue is empty. */
mr__entry *mr__queue_wait(mr__queue *q);
/* The oldest entry once its task is done, less what is to be skipped; NULL: none is left. Entries
 * that were taken whole are forgotten here. */
mr__entry *mr__queue_head(mr__queue *q);
/* The same, pulling up to `want` rows if none is there: MR_OK, MR_END, or an error of no place.
 * want 0, of a queue opened by mr__queue_open_ahead: as many as its tuner says. */
mr_code mr__queue_front(mr__queue *q, size_t want, const mr_destination *destination, mr__entry **e,
                        mr_status *st) MR_NODISCARD;
/* Delivers up to `want` rows of the head, which must have an event, or the error that stands
 * next. */
mr_code mr__queue_deliver(mr__queue *q, size_t want, mr_block *out, mr_status *st) MR_NODISCARD;
/* Front and deliver in one; what is pulled here is delivered whole and needs no position. */
mr_code mr__queue_next(mr__queue *q, size_t want, mr_block *out, mr_status *st) MR_NODISCARD;
/* Takes n events: of the entries, and beyond them of what is pulled next (`gap`). */
void mr__queue_drop(mr__queue *q, size_t n);
/* Takes the error that stands in place of the head's rows: copies it and returns its code. */
mr_code mr__queue_take_error(mr__queue *q, mr_status *st) MR_NODISCARD;

/* Submits the fill if there is room and it pays. */
void mr__queue_start(mr__queue *q);
/* true: the fill is queued or running. */
bool mr__queue_filling(const mr__queue *q);

/* Events of e that were not taken. */
size_t mr__entry_left(const mr__entry *e);
/* Puts an error in place of e's rows. */
void mr__entry_fail(mr__entry *e, mr_code rc, const mr_status *error);
/* Takes it away again, for another try: copies it and returns its code. */
mr_code mr__entry_retry(mr__entry *e, mr_status *st) MR_NODISCARD;

/* The state:
 *   where   0: the input's state follows, as of the tail; 1: the head's position (bytes)
 *   skip, gap
 *   n       entries that were saved (0 where `where` is 1), each
 *             its code; of MR_OK: the rows left (block), number of errors, (place, status)...;
 *             else the status
 * taken: events of the head that count as taken beyond those that are.
 * The end is not saved: the input says so again. */
mr_code mr__queue_save(mr__queue *q, size_t taken, mr_state_w *w, mr_status *st) MR_NODISCARD;
/* spec: of the entries' rows. After a failure the queue may only be cleared or restored again. */
mr_code mr__queue_restore(mr__queue *q, const mr_spec *spec, mr_state_r *r,
                          mr_status *st) MR_NODISCARD;

/* Opens input i anew at a position that mr_iter_position gave: for ops that keep the position of
 * their start. */
mr_code mr__reopen_at(mr_iter *it, size_t i, const void *position, size_t n,
                      mr_status *st) MR_NODISCARD;
#endif
