/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_SERVICE_JOB_H
#define MR_TRANSPORT_SERVICE_JOB_H
/* A job in its wire form: made from a graph, completed with its lists of files and number of
 * streams, and cut into the graphs of its streams.
 *
 *     graph --new--> job --match--> lists --finish--> final job --cut(s)--> graph of stream s
 *
 * A final job has the same streams on every machine. Jobs made here are owned: mr__wire_free.
 *
 * thread   any */
#include "pipeline/engine/iterator_internal.h"
#include "pipeline/graph/rewrite.h"
#include "transport/wire/messages.h"

typedef struct mr__job_opts {
    Mr__Wire__Mode mode;
    uint32_t streams; /* 0: auto */
    uint32_t block_length, consumers;
    uint64_t seed, repetition;
    uint64_t function_seed;
    uint64_t place; /* of the graph in that of the client (mr__iter_place) */
    const char *match;
    bool of_service;       /* workers in other processes run it */
    const char *directory; /* of relative file names; NULL: that of this thread's iterator, or the
                              working directory */
} mr__job_opts;

/* *out = the job of ds.
 * errors   MR_INVALID_ARGUMENT: of_service, and ds names standard input
 *          MR_FAILED_PRECONDITION: ds cannot be sent to other processes or cannot be run again; the
 *          message names the op and says what to do
 *          the error that ds carries */
mr_code mr__job_new(mr_dataset *ds, const mr__job_opts *opts, Mr__Wire__Job **out,
                    mr_status *st) MR_NODISCARD;
/* errors   MR_INVALID_ARGUMENT: ds, or a function in it, names standard input or another descriptor
 *          of this process */
mr_code mr__job_check_names(const mr_dataset *ds, mr_status *st) MR_NODISCARD;
/* MR_OK if this process may run the job's graph for a client: the graph writes no files, or
 * mr_service_allow_writes names where.
 * errors   MR_PERMISSION_DENIED: names the op; MR_INVALID_ARGUMENT: not a graph */
mr_code mr__job_check_writes(const Mr__Wire__Job *job, mr_status *st) MR_NODISCARD;
/* *out = the absolute path of mr__job_opts.directory; owned.
 * errors   the system's: the working directory cannot be determined */
mr_code mr__job_here(const char *directory, char **out, mr_status *st) MR_NODISCARD;
/* *lists = the files that match the patterns in the job's graph, relative to the job's directory;
 * owned, mr__job_lists_free.
 * errors   MR_NOT_FOUND and others: as mr_glob */
mr_code mr__job_match(const Mr__Wire__Job *job, Mr__Wire__FileList ***lists, size_t *n,
                      mr_status *st) MR_NODISCARD;
void mr__job_lists_free(Mr__Wire__FileList **lists, size_t n);
/* *out = job with these lists, and with its number of streams if it had none. */
mr_code mr__job_finish(const Mr__Wire__Job *job, Mr__Wire__FileList **lists, size_t n,
                       Mr__Wire__Job **out, mr_status *st) MR_NODISCARD;
/* Sets the options of an iterator over a stream, except for o->seed, which mr__job_cut returns. If
 * the mode guarantees one sequence, random functions draw the same numbers as without the service.
 * *internal is borrowed by *o. */
void mr__job_seed(const Mr__Wire__Job *job, mr_iterator_opts *o, mr__iterator_internal *internal);
/* *out = the dataset of one stream of a final job; owned. In parallel_epochs and dynamic it is the
 * whole graph (in dynamic, with all splits), in the static modes the part of worker number `stream`
 * of job->streams. *run_seed: mr_iterator_opts.seed for it (with has_seed), together with
 * .directory = job->directory. e may be NULL.
 * errors   MR_INVALID_ARGUMENT: the graph is invalid, or cannot be cut this way */
mr_code mr__job_cut(const Mr__Wire__Job *job, uint32_t stream, mr_dataset **out, uint64_t *run_seed,
                    mr_explanation *e, mr_status *st) MR_NODISCARD;
/* job->directory as mr_iterator_opts.directory; NULL if it is this process's working directory, and
 * this thread runs no iterator with another. */
const char *mr__job_directory(const Mr__Wire__Job *job);
#endif
