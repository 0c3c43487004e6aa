/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/service/client/distribute_job.h"

#include <inttypes.h>
#include <string.h>

#include "pipeline/memory/alloc.h"
#include "shard/streams/stream_cut.h"
#include "transport/net/address.h"
#include "transport/service/job.h"
#include "transport/service/client/registered.h"

static const char *const modes[] = {
    "exactly_once", "dynamic", "parallel_epochs", "file", "data", "file_or_data", "hint", NULL};
static const char *const compressions[] = {"ZSTD", "auto", NULL};
static const char *const targets[] = {"auto", "any", "local", NULL};
static const char *const transfers[] = {"auto", "tcp", "shared_memory", NULL};
static const char *const matches[] = {"worker", "client", NULL};
static const char *const missing[] = {"fail", "move", NULL};

#define OPTION(f, ...) MR_OPT(struct mr__distribute_params, f, __VA_ARGS__)

const mr_param mr__distribute_table[] = {
    MR_ARG(struct mr__distribute_params, service,
           .doc = "HOST:PORT of the dispatcher; \"local\": this process, without a server."),
    OPTION(processing_mode, .flags = MR_P_OPTIONAL, .def.s = "exactly_once", .names = modes,
           .doc = "What is promised of each element."),
    OPTION(job_name, .flags = MR_P_NONE,
           .doc = "Clients of one name share a job; none: a new one."),
    OPTION(streams, .flags = MR_P_AUTO, .min.i = 1, .max.i = MR_MOST_STREAMS,
           .doc = "Parts that the graph is cut into; auto: 8, or as many as there are files."),
    OPTION(block_length, .def.i = 1, .min.i = 1, .max.i = INT32_MAX,
           .doc = "Elements of a stream before the next one's turn."),
    OPTION(deterministic, .def.b = true,
           .doc = "Keeps the order; false: blocks come from whichever stream has one."),
    OPTION(consumer_index, .flags = MR_P_NONE, .max.i = MR_MOST_STREAMS - 1,
           .has_at = offsetof(struct mr__distribute_params, o.has_consumer_index),
           .doc = "Which of the consumers this is, from 0."),
    OPTION(num_consumers, .flags = MR_P_NONE, .min.i = 1, .max.i = MR_MOST_STREAMS,
           .doc = "Consumers that read the job together, each its streams."),
    OPTION(compression, .flags = MR_P_NONE | MR_P_AUTO, .names = compressions,
           .doc = "Of blocks on their way; auto: where the link is slower than it."),
    OPTION(max_outstanding_bytes, .flags = MR_P_AUTO, .min.i = 1, .max.i = INT64_MAX,
           .doc = "Bytes on their way or waiting here; auto: 4 blocks of each stream, 16 MiB at "
                  "least."),
    OPTION(target_workers, .def.s = "auto", .names = targets,
           .doc = "Which workers are read from; local: those of this host."),
    OPTION(transfer, .flags = MR_P_AUTO, .def.s = "auto", .names = transfers,
           .doc = "How blocks come; auto: through shared memory from workers of this host."),
    OPTION(resume, .doc = "Goes on after what was acknowledged under job_name."),
    OPTION(match, .def.s = "worker", .names = matches, .doc = "Who looks patterns of files up."),
    OPTION(on_missing, .def.s = "fail", .names = missing,
           .doc = "Where a worker cannot see a file: an error, or another worker."),
    OPTION(seed, .flags = MR_P_NONE, .has_at = offsetof(struct mr__distribute_params, o.has_seed),
           .doc = "Of random ops that have none; drawn at random if absent."),
    OPTION(connect_timeout, .def.f = MR__CONNECT_TIMEOUT, .min.f = 0.001, .max.f = 1e6,
           .doc = "Seconds to wait for the dispatcher."),
    OPTION(stall_timeout, .flags = MR_P_NONE, .min.f = 0, .max.f = 1e9,
           .doc = "Seconds without an element after which reading fails; none: it waits."),
    OPTION(client_timeout, .def.f = MR__CLIENT_TIMEOUT, .min.f = 1, .max.f = 1e6,
           .doc = "Seconds after which a client that is silent loses its streams."),
    {0}};

mr_code mr__distribute_check(const void *params, mr_status *st)
{
    const mr__distribute_params *p = params;
    const mr_service_opts *o = &p->o;
    if (!*p->service)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "distribute: the service is empty; give HOST:PORT of a dispatcher, or "
                       "\"local\"");
    if (!mr__distribute_is_local(p))
        MR_TRY(mr__address_check(p->service, st));
    if (o->job_name && !*o->job_name)
        return mr_fail(st, MR_INVALID_ARGUMENT, "distribute: job_name is empty; leave it out");
    if (o->has_consumer_index != (o->num_consumers > 0))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "distribute: consumer_index and num_consumers go together");
    if (o->has_consumer_index && o->consumer_index >= o->num_consumers)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "distribute: consumer_index must be below num_consumers (%" PRId64
                       "), not %" PRId64,
                       o->num_consumers, o->consumer_index);
    bool local = o->target_workers && strcmp(o->target_workers, "local") == 0;
    if (local && o->transfer && strcmp(o->transfer, "tcp") == 0)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "distribute: target_workers=\"local\" reads through shared memory, "
                       "transfer=\"tcp\" does not; leave one of them out");
    if (local && o->processing_mode && strcmp(o->processing_mode, "exactly_once") != 0 &&
        strcmp(o->processing_mode, "dynamic") != 0)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "distribute: target_workers=\"local\" is for the modes \"exactly_once\" and "
                       "\"dynamic\"; in \"%s\" each stream has a worker of its own",
                       o->processing_mode);
    bool shared = o->processing_mode && (strcmp(o->processing_mode, "dynamic") == 0 ||
                                         strcmp(o->processing_mode, "parallel_epochs") == 0);
    if (o->has_consumer_index && shared)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "distribute: num_consumers is for the modes with fixed streams; in \"%s\" "
                       "clients share a "
                       "job by its job_name",
                       o->processing_mode);
    if (o->streams > 0 && o->num_consumers > o->streams)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "distribute: num_consumers is %" PRId64 ", but there are %" PRId64
                       " streams to read; give at most that many",
                       o->num_consumers, o->streams);
    if (o->resume && !o->job_name)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "distribute: resume needs the job_name under which elements were "
                       "acknowledged");
    return MR_OK;
}

static Mr__Wire__Mode mode_of(const mr__distribute_params *p)
{
    int i = 0;
    while (modes[i] && strcmp(modes[i], p->o.processing_mode) != 0)
        i++;
    return (Mr__Wire__Mode)i; /* in their order; the table lets no other name in */
}

mr_code mr__distribute_job(const mr__distribute_params *p, mr_dataset *ds, uint64_t seed,
                           uint64_t function_seed, uint64_t repetition, Mr__Wire__Job **out,
                           mr_status *st)
{
    const mr_service_opts *o = &p->o;
    Mr__Wire__Mode mode = mode_of(p);
    bool local = mr__distribute_is_local(p);
    bool cut = mode == MR__WIRE__MODE__EXACTLY_ONCE || (mode == MR__WIRE__MODE__DYNAMIC && !local);
    /* In the other modes the workers count; this process is one, and has one stream. dynamic: as
     * many as are asked for at most. */
    const mr__job_opts j = {.mode = mode,
                            .streams = !cut                    ? local
                                       : o->streams == MR_AUTO ? 0
                                                               : (uint32_t)o->streams,
                            .block_length = (uint32_t)o->block_length,
                            .consumers = (uint32_t)o->num_consumers,
                            .seed = o->has_seed ? (uint64_t)o->seed : seed,
                            .function_seed = o->has_seed ? (uint64_t)o->seed : function_seed,
                            .repetition = repetition,
                            .match = o->match};
    return mr__job_new(ds, &j, out, st);
}

mr_code mr__distribute_finish(Mr__Wire__Job **job, mr_status *st)
{
    Mr__Wire__FileList **lists = NULL;
    Mr__Wire__Job *final = NULL;
    size_t n = 0;
    MR_TRY(mr__job_match(*job, &lists, &n, st));
    mr_code rc = mr__job_finish(*job, lists, n, &final, st);
    mr__job_lists_free(lists, n);
    MR_TRY(rc);
    mr__wire_free(*job);
    *job = final;
    return MR_OK;
}

mr_code mr__distribute_below(const mr_dataset *ds, mr_dataset **out, mr_status *st)
{
    if (mr_dataset_op(ds) == &mr_op_distributed_dataset)
        return mr__registered_dataset(mr_dataset_params(ds), out, st);
    *out = mr_dataset_input(ds, 0);
    return MR_OK;
}

bool mr__distribute_is_local(const mr__distribute_params *p)
{
    return strcmp(p->service, "local") == 0;
}

bool mr__distribute_reads(const mr__distribute_params *p, uint32_t s)
{
    return !p->o.num_consumers || s % (uint64_t)p->o.num_consumers == (uint64_t)p->o.consumer_index;
}

int64_t mr__distribute_cardinality(const mr_dataset *self, const void *params, const int64_t *in)
{
    const mr__distribute_params *p = params;
    mr_dataset *input;
    int64_t streams = p->o.streams, sum = 0;
    if (mr__distribute_below(self, &input, NULL) != MR_OK)
        return MR_UNKNOWN_COUNT;
    int64_t whole = mr_dataset_n_inputs(self) ? in[0] : mr_dataset_cardinality(input);
    if (mode_of(p) == MR__WIRE__MODE__DYNAMIC && mr__distribute_is_local(p))
        return whole; /* one stream: its batches are those of the graph */
    if (whole < 0 || mode_of(p) != MR__WIRE__MODE__EXACTLY_ONCE)
        return whole == MR_INFINITE ? MR_INFINITE : MR_UNKNOWN_COUNT;
    if (streams <= 0 && mr_count_streams(input, NULL, &streams, NULL) != MR_OK)
        return MR_UNKNOWN_COUNT;
    /* Batches are batches of a stream: their number is the sum over the streams. */
    for (int64_t s = 0; s < streams; s++) {
        const mr_stream_cut_opts o = {.streams = streams, .stream = s};
        mr_dataset *ds = NULL;
        if (!mr__distribute_reads(p, (uint32_t)s))
            continue;
        if (mr_cut_stream(input, &o, &ds, NULL, NULL, NULL) != MR_OK)
            return MR_UNKNOWN_COUNT;
        int64_t n = mr_dataset_cardinality(ds);
        mr_dataset_unref(ds);
        if (n < 0 || __builtin_add_overflow(sum, n, &sum))
            return MR_UNKNOWN_COUNT;
    }
    return sum;
}

/* Streams that this consumer reads at once. */
static int64_t streams_read(const mr_dataset *self, const mr__distribute_params *p)
{
    mr_dataset *input;
    int64_t streams = p->o.streams, n = 0;
    if (mode_of(p) != MR__WIRE__MODE__EXACTLY_ONCE)
        return mr__distribute_is_local(p) ? 1 : MR_AUTO_STREAMS;
    if (streams <= 0 && (mr__distribute_below(self, &input, NULL) != MR_OK ||
                         mr_count_streams(input, NULL, &streams, NULL) != MR_OK))
        return MR_AUTO_STREAMS;
    for (int64_t s = 0; s < streams; s++)
        n += mr__distribute_reads(p, (uint32_t)s);
    return n;
}

void mr__distribute_needs(const mr_dataset *self, const void *params, int64_t *copies,
                          int64_t *blocks)
{
    int64_t n = streams_read(self, params);
    bool local = mr__distribute_is_local(params);
    *copies = local ? n : 0;
    *blocks = 2 * n; /* what a stream gives out lies beside what its graph makes next */
}

/* Of a service elsewhere, in the modes whose streams its workers are: which of them are shown. */
static mr_code explain_mode(Mr__Wire__Job *job, mr_explanation *e, mr_status *st)
{
    if (job->streams)
        return MR_OK;
    job->streams = job->mode >= MR__WIRE__MODE__FILE ? 2 : 1;
    if (job->mode == MR__WIRE__MODE__DYNAMIC)
        return mr_explain(
            e, "mode", NULL, st,
            "dynamic: its splits (%" PRIu64 ") are given, on demand, to as many streams "
            "as there are workers and clients; each is this graph over its own splits",
            job->splits);
    if (job->mode == MR__WIRE__MODE__PARALLEL_EPOCHS)
        return mr_explain(e, "mode", NULL, st,
                          "parallel_epochs: every worker has a stream of its own, which is this "
                          "graph, whole");
    return mr_explain(e, "mode", NULL, st,
                      "%s: worker i of the dispatcher's list has stream i; shown as for a list of "
                      "two",
                      modes[job->mode]);
}

mr_code mr_service_streams(mr_dataset *ds, mr_dataset ***out, size_t *n, mr_explanation *e,
                           mr_status *st)
{
    MR_TRY(mr_dataset_check(ds, st));
    *n = 0;
    *out = NULL;
    if (mr_dataset_op(ds) != &mr_op_distribute && mr_dataset_op(ds) != &mr_op_distributed_dataset)
        return MR_OK;
    Mr__Wire__Job *job = NULL;
    mr_dataset *input;
    MR_TRY(mr__distribute_below(ds, &input, st));
    MR_TRY(mr__distribute_job(mr_dataset_params(ds), input, 0, 0, 0, &job, st));
    mr_code rc = mr__distribute_finish(&job, st);
    if (rc == MR_OK)
        rc = explain_mode(job, e, st);
    mr_dataset **v = rc == MR_OK ? mr_calloc(job->streams, sizeof(mr_dataset *)) : NULL;
    if (rc == MR_OK && !v)
        rc = mr_fail_memory(st, job->streams * sizeof(mr_dataset *), "the streams of a job");
    for (size_t s = 0; rc == MR_OK && s < job->streams; s++)
        rc = mr__job_cut(job, (uint32_t)s, &v[s], NULL, s ? NULL : e, st);
    if (rc == MR_OK) {
        *out = v;
        *n = job->streams;
    } else {
        for (size_t s = 0; v && s < job->streams; s++)
            mr_dataset_unref(v[s]);
        mr_free(v);
    }
    mr__wire_free(job);
    return rc;
}
