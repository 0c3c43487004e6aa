/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_SERVERS_HOSTED_STREAMS_H
#define MR_TRAINER_SERVERS_HOSTED_STREAMS_H
/* The streams of an elastic job's data that a worker of parameter servers hosts. The coordinator
 * says from which stream a step takes its batch, and where a stream begins that another worker had.
 * The worker returns with each step where the stream is after it, and, having looked one batch
 * ahead, whether it has ended. The batch looked at is not part of the position.
 *
 * Members of a call: `stream`; `pass`, which is to be read; `hosted`, all streams of this worker;
 * for a stream that begins here `position` and `at_pass`, the pass that the position is in (without
 * them: its beginning). Of an answer: `position`, `ended`.
 *
 * thread   one at a time per object */
#include "pipeline/engine/iterator_internal.h"
#include "shard/distribute/lone_streams_internal.h"
#include "trainer/loop/step_records.h"
#include "trainer/servers/server_call.h"

typedef struct mr__hosted_stream {
    mr_iterator *it; /* NULL: not here */
    int64_t pass;
    mr_block ahead; /* the next batch, with looked and rc MR_OK */
    bool looked;
    mr_code rc; /* of the look */
    mr_status st;
} mr__hosted_stream;

typedef struct mr__hosted_streams {
    mr__lone_streams *graphs; /* NULL: the job is not elastic */
    int64_t n;
    mr__hosted_stream *v;
    mr__hosted_stream *now;    /* of the call in progress */
    mr_executor *executor;     /* of all of them */
    mr__step_records *records; /* NULL: there is no ledger */
    mr_iterator_opts run;
    mr__iterator_internal internal;
    mr_block batch; /* delivered last */
    void *position; /* after it */
    size_t position_size;
    const void *noted; /* its records; of `records` */
    size_t noted_size;
} mr__hosted_streams;

/* call: SETUP; `streams` is their number, `files` the files of each pattern, `ledger` whether
 * records are returned. ds: the data of the job; s: for the ledger; both borrowed until close, like
 * cancel. x must be zeroed. Close it after a failure too. */
mr_code mr__hosted_streams_open(mr__hosted_streams *x, mr_dataset *ds, const mr__call *call,
                                mr_cancel *cancel, mr_strategy *s, mr_status *st) MR_NODISCARD;
void mr__hosted_streams_close(mr__hosted_streams *x);
/* Goes to the stream that the call names, and closes those that it does not list as hosted here. */
mr_code mr__hosted_streams_enter(mr__hosted_streams *x, const mr__call *call,
                                 mr_status *st) MR_NODISCARD;
/* mr__feed.next, of this stream; ctx: x. */
mr_code mr__hosted_streams_next(void *ctx, mr_step *out, mr_status *st);
/* Looks ahead, and adds the members of an answer to `to`. */
mr_code mr__hosted_streams_report(mr__hosted_streams *x, json_t *to, mr_status *st) MR_NODISCARD;
#endif
