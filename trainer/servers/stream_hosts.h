/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_SERVERS_STREAM_HOSTS_H
#define MR_TRAINER_SERVERS_STREAM_HOSTS_H
/* The coordinator's account of the streams of an elastic job: which worker hosts each, and where it
 * is. Each step takes its batch from a stream that no other step in progress uses, so a stream is
 * always at a known place: after the last batch whose step was done. From there another worker
 * continues it when its host is lost, and from there a job continues that was started again.
 *
 * thread   one at a time per object */
#include "trainer/servers/server_call.h"

typedef struct mr__stream_place {
    size_t host;      /* a worker; with hosted */
    bool hosted;      /* else waiting for a worker */
    bool open;        /* the host has it at `position` */
    bool known;       /* whether it has ended in this pass; else its host must look */
    bool ended;       /* with known */
    bool used;        /* by a step, or a look, that is not done */
    json_t *position; /* base64; NULL: the beginning of the first pass */
    int64_t at_pass;  /* of position */
    int64_t steps;    /* in this pass, in this run */
} mr__stream_place;

typedef struct mr__stream_hosts {
    mr__stream_place *v;
    size_t n; /* 0: the job is not elastic */
    bool *up; /* workers that are set up */
    size_t n_workers;
    int64_t pass;
} mr__stream_hosts;

mr_code mr__stream_hosts_open(mr__stream_hosts *x, size_t streams, size_t workers,
                              mr_status *st) MR_NODISCARD;
void mr__stream_hosts_close(mr__stream_hosts *x);

/* A worker is set up, or is not (any more): gives its streams to others, and takes some for it that
 * no step uses. Returns the number of streams that a lost one had. */
size_t mr__stream_hosts_set(mr__stream_hosts *x, size_t worker, bool is_up);
/* Shares the streams out evenly, as far as steps in progress allow. */
void mr__stream_hosts_share(mr__stream_hosts *x);

/* Takes a stream for a step. false: all are in use, or not known yet */
bool mr__stream_hosts_take(mr__stream_hosts *x, size_t *stream);
/* Every stream has ended, also those in use. */
bool mr__stream_hosts_over(const mr__stream_hosts *x);
/* Takes a stream of this worker that must be looked at. */
bool mr__stream_hosts_to_look(mr__stream_hosts *x, size_t worker, size_t *stream);
/* Adds the members of a call that go to the host. false: out of memory */
bool mr__stream_hosts_describe(const mr__stream_hosts *x, size_t stream, json_t *to);
/* The host answered: the stream is free. errors MR_DATA_LOSS */
mr_code mr__stream_hosts_answered(mr__stream_hosts *x, size_t stream, bool step,
                                  const mr__call *answer, mr_status *st) MR_NODISCARD;

/* The beginning of the next pass; no step is in progress. */
void mr__stream_hosts_rewind(mr__stream_hosts *x);
/* Places as bytes (owned: mr_free), and back; bytes NULL: the beginning of `pass`.
 * errors   MR_RESOURCE_EXHAUSTED; MR_INVALID_ARGUMENT: no such bytes; MR_FAILED_PRECONDITION:
 *          another number of streams */
mr_code mr__stream_hosts_save(const mr__stream_hosts *x, void **bytes, size_t *size,
                              mr_status *st) MR_NODISCARD;
mr_code mr__stream_hosts_restore(mr__stream_hosts *x, const void *bytes, size_t size, int64_t pass,
                                 mr_status *st) MR_NODISCARD;
#endif
