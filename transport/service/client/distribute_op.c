/* SPDX-License-Identifier: Apache-2.0 */
/* distribute: reads the streams of a job in turn, as interleave does with its datasets. The streams
 * come from a source (stream_source.h).
 *
 * A repetition (a repeat above, the next epoch of a loop) is the next epoch of the same streams. In
 * this process, the source is kept between the op's iterators and has its own threads, because it
 * may outlive theirs. At a remote service each repetition is a separate job, which begins where the
 * streams of the previous one ended. */
#include <inttypes.h>
#include <pthread.h>
#include <string.h>

#include "pipeline/engine/op_iterator.h"
#include "pipeline/engine/op_source.h"
#include "pipeline/engine/op_buffering.h"
#include "pipeline/log.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/system/fork.h"
#include "pipeline/system/name_scope.h"
#include "shard/passes/own_files.h"
#include "shard/streams/stream_cut.h"
#include "transport/net/address.h"
#include "transport/service/client/client_run.h"
#include "transport/service/client/job_reader.h"
#include "transport/service/client/local_source.h"
#include "transport/service/client/registered.h"
#include "transport/service/job.h"
#include "transport/service/service.h"
#include "transport/service/stream_position.h"
#include "transport/wire/tls_certificates.h"

enum { ZSTD_LEVEL = 1, MOST_PARAMS = 64 };

/* Default timeouts, in seconds. */
#define CONNECT_TIMEOUT 60.0
#define CLIENT_TIMEOUT  30.0

/* ---- parameters ---- */

typedef struct distribute_params {
    char *service;
    mr_service_opts o;
    char *dataset_id; /* only distributed_dataset, which has no input */
} distribute_params;

static const char *const modes[] = {
    "exactly_once", "dynamic", "parallel_epochs", "file", "data", "file_or_data", "hint", NULL};

static const char *const compressions[] = {"ZSTD", "auto", NULL};

static const char *const targets[] = {"auto", "any", "local", NULL};

static const char *const transfers[] = {"auto", "tcp", "shared_memory", NULL};

static const char *const matches[] = {"worker", "client", NULL};

static const char *const missing[] = {"fail", "move", NULL};

#define OPTION(f, ...) MR_OPT(struct distribute_params, f, __VA_ARGS__)

static const mr_param table[] = {
    MR_ARG(struct distribute_params, service,
           .doc = "HOST:PORT of the dispatcher; \"local\": this process, without a server."),
    OPTION(processing_mode, .flags = MR_P_OPTIONAL, .def.s = "exactly_once", .names = modes,
           .doc = "Delivery guarantee for each element."),
    OPTION(job_name, .flags = MR_P_NONE,
           .doc = "Clients with the same name share a job; none: a new job."),
    OPTION(streams, .flags = MR_P_AUTO, .min.i = 1, .max.i = MR_MOST_STREAMS,
           .doc = "Number of streams that the graph is cut into; auto: 8, or the number of files "
                  "if smaller."),
    OPTION(block_length, .def.i = 1, .min.i = 1, .max.i = INT32_MAX,
           .doc = "Number of elements of a stream before the next stream's turn."),
    OPTION(deterministic, .def.b = true,
           .doc = "Keeps the order; false: blocks come from whichever stream has one."),
    OPTION(consumer_index, .flags = MR_P_NONE, .max.i = MR_MOST_STREAMS - 1,
           .has_at = offsetof(struct distribute_params, o.has_consumer_index),
           .doc = "Index of this consumer, from 0."),
    OPTION(num_consumers, .flags = MR_P_NONE, .min.i = 1, .max.i = MR_MOST_STREAMS,
           .doc = "Number of consumers that read the job together, each its own streams."),
    OPTION(
        compression, .flags = MR_P_NONE | MR_P_AUTO, .names = compressions,
        .doc =
            "Compression of blocks on the network; auto: if the link is slower than compressing."),
    OPTION(max_outstanding_bytes, .flags = MR_P_AUTO, .min.i = 1, .max.i = INT64_MAX,
           .doc = "Maximum bytes in transit or waiting here; auto: 4 blocks of each stream, at "
                  "least 16 MiB."),
    OPTION(target_workers, .def.s = "auto", .names = targets,
           .doc = "Workers to read from; local: only those on this host."),
    OPTION(
        transfer, .flags = MR_P_AUTO, .def.s = "auto", .names = transfers,
        .doc =
            "How blocks are transferred; auto: through shared memory from workers on this host."),
    OPTION(resume, .doc = "Resumes after the elements that were acknowledged under job_name."),
    OPTION(match, .def.s = "worker", .names = matches,
           .doc = "Whether workers or the client expand file patterns."),
    OPTION(on_missing, .def.s = "fail", .names = missing,
           .doc = "If a worker cannot see a file: fail, or move the stream to another worker."),
    OPTION(seed, .flags = MR_P_NONE, .has_at = offsetof(struct distribute_params, o.has_seed),
           .doc = "Seed for random ops without one; drawn at random if absent."),
    OPTION(connect_timeout, .def.f = CONNECT_TIMEOUT, .min.f = 0.001, .max.f = 1e6,
           .doc = "Seconds to wait for the dispatcher."),
    OPTION(stall_timeout, .flags = MR_P_NONE, .min.f = 0, .max.f = 1e9,
           .doc = "Seconds without an element after which reading fails; none: it waits."),
    OPTION(client_timeout, .def.f = CLIENT_TIMEOUT, .min.f = 1, .max.f = 1e6,
           .doc = "Seconds after which a silent client loses its streams."),
    {0}};

/* True if the streams run in this process. */
static bool is_local(const distribute_params *p)
{
    return strcmp(p->service, "local") == 0;
}

/* True if this consumer reads stream s. */
static bool reads(const distribute_params *p, uint32_t s)
{
    return !p->o.num_consumers || s % (uint64_t)p->o.num_consumers == (uint64_t)p->o.consumer_index;
}

/* The number of the job's streams that this consumer reads. */
static uint64_t streams_of(const distribute_params *p, const Mr__Wire__Job *job)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < job->streams; i++)
        n += reads(p, i);
    return n;
}

/* Constraints that the table cannot express. */
static mr_code check(const void *params, mr_status *st)
{
    const distribute_params *p = params;
    const mr_service_opts *o = &p->o;
    if (!*p->service)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "distribute: the service is empty; give HOST:PORT of a dispatcher, or "
                       "\"local\"");
    if (!is_local(p))
        MR_TRY(mr__address_check(p->service, st));
    if (o->job_name && !*o->job_name)
        return mr_fail(st, MR_INVALID_ARGUMENT, "distribute: job_name is empty; leave it out");
    if (o->job_name && strlen(o->job_name) > MR__MOST_TEXT)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "distribute: job_name has %zu bytes; it must have at most %d",
                       strlen(o->job_name), MR__MOST_TEXT);
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
                       "\"dynamic\"; in \"%s\" each stream has its own worker",
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
                       " streams to read; use at most that many",
                       o->num_consumers, o->streams);
    if (o->resume && !o->job_name)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "distribute: resume needs the job_name under which elements were "
                       "acknowledged");
    return MR_OK;
}

static Mr__Wire__Mode mode_of(const distribute_params *p)
{
    int i = 0;
    while (modes[i] && strcmp(modes[i], p->o.processing_mode) != 0)
        i++;
    return (Mr__Wire__Mode)i; /* in the order of the enum; the table accepts no other name */
}

/* ---- the requested job ---- */

/* *out = the job for p over ds, the op's input, whose names are relative to the directory (as
 * mr__job_opts); not final yet. The seeds apply if p has none. */
static mr_code new_job(const distribute_params *p, mr_dataset *ds, const char *directory,
                       uint64_t seed, uint64_t function_seed, uint64_t place, Mr__Wire__Job **out,
                       mr_status *st)
{
    const mr_service_opts *o = &p->o;
    Mr__Wire__Mode mode = mode_of(p);
    bool local = is_local(p);
    bool cut = mode == MR__WIRE__MODE__EXACTLY_ONCE || (mode == MR__WIRE__MODE__DYNAMIC && !local);
    /* In the other modes the number of workers decides; this process is one worker with one
     * stream. dynamic: `streams` is the maximum. */
    const mr__job_opts j = {.mode = mode,
                            .streams = !cut                    ? local
                                       : o->streams == MR_AUTO ? 0
                                                               : (uint32_t)o->streams,
                            .block_length = (uint32_t)o->block_length,
                            .consumers = (uint32_t)o->num_consumers,
                            .seed = o->has_seed ? (uint64_t)o->seed : seed,
                            .function_seed = o->has_seed ? (uint64_t)o->seed : function_seed,
                            .place = place,
                            .match = o->match,
                            .of_service = !local,
                            .directory = directory};
    return mr__job_new(ds, &j, out, st);
}

/* Makes *job final in this process. */
static mr_code finish_job(Mr__Wire__Job **job, mr_status *st)
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

/* *out = the dataset with the id of distributed_dataset, and *directory = where it was registered;
 * borrowed. */
static mr_code registered(const distribute_params *p, mr_dataset **out, const char **directory,
                          mr_status *st)
{
    if (is_local(p))
        return mr_fail(
            st, MR_INVALID_ARGUMENT,
            "no datasets are registered in this process; give HOST:PORT of a dispatcher");
    return mr__registered_dataset(p->service, p->dataset_id, p->o.connect_timeout, p->o.tls, out,
                                  directory, st);
}

/* *out = the graph that is cut into streams; borrowed. *directory: of its names, as
 * mr__job_opts. */
static mr_code graph_of(const mr_dataset *ds, mr_dataset **out, const char **directory,
                        mr_status *st)
{
    *directory = NULL;
    if (mr_dataset_n_inputs(ds) == 0) /* distributed_dataset */
        return registered(mr_dataset_params(ds), out, directory, st);
    *out = mr_dataset_input(ds, 0);
    return MR_OK;
}

/* Refuses a graph whose streams would write the same file. */
static mr_code check_files(const distribute_params *p, mr_dataset *input, mr_status *st)
{
    if (!p->service || !p->o.processing_mode) /* not known before the function is called */
        return MR_OK;
    Mr__Wire__Mode mode = mode_of(p);
    bool cut = mode == MR__WIRE__MODE__EXACTLY_ONCE;
    bool several = is_local(p) ? cut : !cut || p->o.streams != 1;
    bool fixed = mode != MR__WIRE__MODE__DYNAMIC && mode != MR__WIRE__MODE__PARALLEL_EPOCHS;
    int64_t n = cut && p->o.streams > 0 ? p->o.streams : MR_SEVERAL_PARTS;
    const mr_parts parts = {.n = several && fixed ? n : !several, .what = "streams"};
    return mr_check_own_files(input, &parts, st);
}

static mr_code infer(const mr_dataset *self, const void *params, mr_spec **out, mr_status *st)
{
    mr_dataset *input = mr_dataset_input(self, 0);
    MR_TRY(check_files(params, input, st));
    *out = mr_spec_ref(mr_dataset_spec(input));
    return MR_OK;
}

static int64_t count(const mr_dataset *self, const distribute_params *p, mr_dataset *input,
                     const int64_t *in)
{
    int64_t streams = p->o.streams, sum = 0;
    int64_t whole = mr_dataset_n_inputs(self) ? in[0] : mr_dataset_cardinality(input);
    if (mode_of(p) == MR__WIRE__MODE__DYNAMIC && is_local(p))
        return whole; /* one stream: its batches are those of the graph */
    if (whole < 0 || mode_of(p) != MR__WIRE__MODE__EXACTLY_ONCE)
        return whole == MR_INFINITE ? MR_INFINITE : MR_UNKNOWN_COUNT;
    if (streams <= 0 && mr_count_streams(input, NULL, &streams, NULL) != MR_OK)
        return MR_UNKNOWN_COUNT;
    /* Batches are batches of a stream: their number is the sum over the streams. */
    for (int64_t s = 0; s < streams; s++) {
        const mr_stream_cut_opts o = {.streams = streams, .stream = s};
        mr_dataset *ds = NULL;
        if (!reads(p, (uint32_t)s))
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

static int64_t cardinality(const mr_dataset *self, const void *params, const int64_t *in)
{
    mr_dataset *input;
    const char *directory;
    if (graph_of(self, &input, &directory, NULL) != MR_OK)
        return MR_UNKNOWN_COUNT;
    mr__name_scope outer = mr__name_scope_enter(directory);
    int64_t n = count(self, params, input, in);
    mr__name_scope_set(outer);
    return n;
}

/* Number of streams that this consumer reads at once. */
static int64_t streams_read(const mr_dataset *self, const distribute_params *p)
{
    mr_dataset *input;
    const char *directory;
    int64_t streams = p->o.streams, n = 0;
    if (mode_of(p) != MR__WIRE__MODE__EXACTLY_ONCE)
        return is_local(p) ? 1 : MR_AUTO_STREAMS;
    if (streams <= 0) {
        if (graph_of(self, &input, &directory, NULL) != MR_OK)
            return MR_AUTO_STREAMS;
        mr__name_scope outer = mr__name_scope_enter(directory);
        mr_code rc = mr_count_streams(input, NULL, &streams, NULL);
        mr__name_scope_set(outer);
        if (rc != MR_OK)
            return MR_AUTO_STREAMS;
    }
    for (int64_t s = 0; s < streams; s++)
        n += reads(p, (uint32_t)s);
    return n;
}

/* In this process: a copy of the input for each stream; elsewhere: two blocks of each stream, one
 * that arrives and one that is read. */
static void needs(const mr_dataset *self, const void *params, int64_t *copies, int64_t *blocks)
{
    int64_t n = streams_read(self, params);
    bool local = is_local(params);
    *copies = local ? n : 0;
    *blocks = 2 * n; /* the block that a stream has emitted, and the one its graph makes next */
}

/* ---- state ---- */

typedef struct slot {
    uint32_t stream;
    mr_block rows; /* the last block of the stream; rows before `at` were delivered */
    size_t at;
    bool ended, has_news; /* has_news: its place has changed since the source was informed */
} slot;

/* Where the next repetition begins: at these places of a remote service; in this process the
 * streams are rewound, and the places are those of their last elements. */
typedef struct beginning {
    Mr__Wire__Job *job; /* final; NULL: unknown */
    Mr__Wire__Place **places;
    size_t n;
} beginning;

/* State shared by the iterators of one dataset. Positions contain it too, for iterators that are
 * opened after a restore. */
typedef struct shared {
    mr__lock lock;             /* guards the rest */
    mr_executor *executor;     /* runs the streams of the source */
    mr__stream_source *source; /* of a closed iterator, for the next one; NULL: none */
    beginning next;            /* with a source: its places, noted for a position */
    bool has_seed;             /* of the job */
    uint64_t seed;
    bool restored; /* from a position: clients that read past it have left, also in later
                      repetitions */
} shared;

struct state {
    shared *shared;
    Mr__Wire__Job *job; /* not final yet; NULL: the source owns it, or opening failed */
    beginning begin;    /* instead of job */
    mr__stream_source *source;
    slot *slots;          /* the streams that this consumer reads, by index */
    size_t *news, n_news; /* indices of the slots with news */
    size_t n, n_ended, c; /* c: the slot whose turn it is */
    uint64_t b;           /* elements of slot c that were taken in this turn */
    bool failed;          /* opening the streams failed and was reported */
    int64_t taken; /* bytes reserved from the memory limit, for blocks that workers send ahead */
};

static void free_places(Mr__Wire__Place **v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        mr__wire_free(v[i]);
    mr_free(v);
}

static void free_beginning(beginning *b)
{
    free_places(b->places, b->n);
    mr__wire_free(b->job);
    *b = (beginning){0};
}

static void init_shared(void *p)
{
    mr__lock_init(&((shared *)p)->lock);
}

static void destroy_shared(void *p)
{
    shared *h = p;
    if (h->source)
        h->source->class_->close(h->source);
    if (h->executor)
        mr_executor_free(h->executor);
    free_beginning(&h->next);
    mr__lock_destroy(&h->lock);
}

/* ---- opening ---- */

/* True if streams are added and removed; they have no slots then. */
static bool is_shared(const struct state *s)
{
    return s->source && s->source->class_->next_of_all;
}

static mr_code make_slots(mr_iter *it, uint32_t streams, mr_status *st)
{
    struct state *s = it->state;
    slot *slots = mr_calloc(streams + (size_t)1, sizeof *slots);
    s->news = mr_calloc(streams + (size_t)1, sizeof *s->news);
    if (!slots || !s->news) {
        mr_free(slots);
        mr_free(s->news);
        s->news = NULL;
        return mr_fail_memory(st, streams * sizeof *slots, "the streams of a job");
    }
    s->slots = slots;
    for (uint32_t i = 0; i < streams && !is_shared(s); i++)
        if (reads(it->params, i))
            s->slots[s->n++].stream = i;
    return MR_OK;
}

/* The same for a job whose source is not open yet. */
static bool is_shared_job(const distribute_params *p, const Mr__Wire__Job *job)
{
    return !is_local(p) &&
           (job->mode == MR__WIRE__MODE__DYNAMIC || job->mode == MR__WIRE__MODE__PARALLEL_EPOCHS);
}

static mr_code executor_of(mr_iter *it, mr_executor **out, mr_status *st)
{
    shared *h = ((struct state *)it->state)->shared;
    mr_code rc = MR_OK;
    mr__lock_take(&h->lock);
    if (!h->executor)
        rc = mr_executor_new(mr_executor_threads(mr_iter_executor(it)), &h->executor, st);
    *out = h->executor;
    mr__lock_release(&h->lock);
    return rc;
}

static mr__transfer transfer_of(const mr_service_opts *o)
{
    if (!o->transfer || strcmp(o->transfer, "auto") == 0)
        return MR__TRANSFER_AUTO;
    return strcmp(o->transfer, "tcp") == 0 ? MR__TRANSFER_TCP : MR__TRANSFER_SHARED_MEMORY;
}

/* Maximum of outstanding bytes; 0: auto. Under a memory limit they are reserved from it. */
static uint64_t outstanding(mr_iter *it)
{
    const distribute_params *p = it->params;
    struct state *s = it->state;
    int64_t most = p->o.max_outstanding_bytes > 0 ? p->o.max_outstanding_bytes : 0;
    if (!mr_iter_opts(it)->memory_limit)
        return (uint64_t)most;
    if (!s->taken)
        s->taken = mr_iter_take_memory(it, most ? most : MR__LEAST_BYTES);
    return s->taken ? (uint64_t)s->taken : 1;
}

/* Joins the job (taken over) at a remote service, with its streams at the places. */
static mr_code open_remote(mr_iter *it, Mr__Wire__Job *job, Mr__Wire__Place *const *places,
                           size_t n_places, bool begins, bool restores, mr_status *st)
{
    const distribute_params *p = it->params;
    const mr_service_opts *o = &p->o;
    struct state *s = it->state;
    bool local = o->target_workers && strcmp(o->target_workers, "local") == 0;
    const mr__remote_opts opts = {.service = p->service,
                                  .name = o->job_name,
                                  .consumer = (uint32_t)o->consumer_index,
                                  .resume = o->resume,
                                  .begins = begins,
                                  .restores = restores,
                                  .missing_moves =
                                      o->on_missing && strcmp(o->on_missing, "move") == 0,
                                  .connect_timeout = o->connect_timeout,
                                  .stall_timeout = o->stall_timeout,
                                  .client_timeout = o->client_timeout,
                                  .most_bytes = outstanding(it),
                                  .compression = o->compression ? ZSTD_LEVEL : 0,
                                  .measured = o->compression && strcmp(o->compression, "auto") == 0,
                                  .transfer = local ? MR__TRANSFER_SHARED_MEMORY : transfer_of(o),
                                  .local_workers = local,
                                  .tls = o->tls,
                                  .it = it};
    MR_TRY(mr__remote_source_open(&s->source, job, places, n_places, &opts, st));
    return make_slots(it, s->source->job->streams, st);
}

/* Opens the streams of the final job (taken over) at the places. */
static mr_code open_source(mr_iter *it, Mr__Wire__Job *job, Mr__Wire__Place *const *places,
                           size_t n_places, mr_status *st)
{
    struct state *s = it->state;
    uint32_t streams = job->streams, *mine = NULL;
    if (!is_local(it->params))
        return open_remote(it, job, places, n_places, false, true, st);
    const mr__iterator_internal internal = {.opened_again = mr_iter_opened_again(it)};
    mr_iterator_opts o = {.positions = mr_iter_keeps_positions(it),
                          .identities = mr_iter_identities(it),
                          .no_uring = mr_iter_no_uring(it),
                          .cancel = mr_iter_cancel(it),
                          .memory_limit = mr_iter_opts(it)->memory_limit,
                          .block_rows = (int64_t)mr_iter_block_rows(it, SIZE_MAX, 1),
                          .internal = &internal};
    mr_code rc = executor_of(it, &o.executor, st);
    if (rc == MR_OK)
        rc = make_slots(it, streams, st);
    if (rc == MR_OK && !(mine = mr_calloc(s->n + 1, sizeof *mine)))
        rc = mr_fail_memory(st, s->n * sizeof *mine, "the streams of a job");
    for (size_t i = 0; rc == MR_OK && i < s->n; i++)
        mine[i] = s->slots[i].stream;
    if (rc == MR_OK)
        rc = mr__local_source_open(&s->source, job, mine, s->n, places, n_places, &o, st);
    else
        mr__wire_free(job);
    mr_free(mine);
    return rc;
}

/* Starts the next repetition of the streams in this process: those of the last iterator, or those
 * of a position. */
static mr_code rewind_local(mr_iter *it, mr_status *st)
{
    struct state *s = it->state;
    beginning b = s->begin;
    s->begin = (beginning){0};
    mr_code rc = MR_OK;
    if (!s->source)
        rc = open_source(it, b.job, b.places, b.n, st);
    else
        mr__wire_free(b.job);
    b.job = NULL;
    free_beginning(&b);
    return rc == MR_OK ? mr__local_source_rewind(s->source, st) : rc;
}

static mr_code open(mr_iter *it, mr_status *st)
{
    struct state *s = it->state;
    void *p;
    MR_TRY(mr_iter_shared(it, sizeof(shared), init_shared, destroy_shared, &p, st));
    shared *h = s->shared = p;
    mr__lock_take(&h->lock);
    if (!h->has_seed && !mr__iter_job_seed(it, &h->seed))
        h->seed = mr_iter_fresh_seed(it);
    h->has_seed = true;
    uint64_t seed = h->seed;
    s->source = h->source;
    h->source = NULL;
    s->begin = h->next;
    h->next = (beginning){0};
    mr__lock_release(&h->lock);
    if (is_local(it->params)) /* the streams' caches do */
        mr_iter_set_records(it, true);
    else
        mr_iter_set_may_block(it);
    if (s->source || (s->begin.job && is_local(it->params)))
        return rewind_local(it, st);
    if (s->begin.job)
        return MR_OK;
    mr_dataset *below;
    const char *directory;
    MR_TRY(graph_of(it->node, &below, &directory, st));
    return new_job(it->params, below, directory, seed, mr_iter_function_seed(it),
                   mr__iter_place(it), &s->job, st);
}

/* Opens the streams of a repetition whose beginning is known. */
static mr_code open_beginning(mr_iter *it, Mr__Wire__Job *job, mr_status *st)
{
    struct state *s = it->state;
    mr__lock_take(&s->shared->lock);
    bool restored = s->shared->restored;
    mr__lock_release(&s->shared->lock);
    size_t n = restored && is_shared_job(it->params, job) ? 0 : s->begin.n;
    return open_remote(it, job, s->begin.places, n, !restored, restored, st);
}

static mr_code open_job(mr_iter *it, Mr__Wire__Job *job, mr_status *st)
{
    const distribute_params *p = it->params;
    bool local = is_local(p);
    if (local || (p->o.match && strcmp(p->o.match, "client") == 0)) {
        mr_code rc = finish_job(&job, st);
        if (rc != MR_OK) {
            mr__wire_free(job);
            return rc;
        }
    }
    return local ? open_source(it, job, NULL, 0, st)
                 : open_remote(it, job, NULL, 0, false, false, st);
}

/* Opens the streams, unless they are open. File patterns are matched now. After an interrupted wait
 * it can be called again. */
static mr_code ensure_source(mr_iter *it, mr_status *st)
{
    struct state *s = it->state;
    if (s->slots)
        return MR_OK;
    if (s->source)
        return make_slots(it, s->source->job->streams, st);
    bool begins = s->begin.job != NULL;
    Mr__Wire__Job *job = NULL;
    mr_code rc = mr__wire_copy(begins ? &s->begin.job->base : &s->job->base, &job, st);
    if (rc == MR_OK)
        rc = begins ? open_beginning(it, job, st) : open_job(it, job, st);
    s->failed = rc != MR_OK && rc != MR_CANCELLED;
    if (rc == MR_CANCELLED)
        return rc;
    free_beginning(&s->begin);
    mr__wire_free(s->job);
    s->job = NULL;
    return rc;
}

static void drop_slots(struct state *s)
{
    for (size_t i = 0; i < s->n; i++)
        mr_block_reset(&s->slots[i].rows);
    mr_free(s->slots);
    mr_free(s->news);
    s->slots = NULL;
    s->news = NULL;
    s->n = s->n_ended = s->c = s->n_news = 0;
    s->b = 0;
}

/* Informs the source which rows of each stream were not delivered yet. */
static void say_where_it_stands(struct state *s)
{
    if (is_shared(s))
        s->source->class_->stands(s->source, 0, 0);
    for (size_t i = 0; i < s->n && s->source; i++)
        if (s->source->class_->stands)
            s->source->class_->stands(s->source, s->slots[i].stream,
                                      s->slots[i].rows.rows - s->slots[i].at);
}

/* parallel_epochs: the workers that hosted the streams of this client. The next repetition needs
 * nothing else of their places. */
static mr_code homes_of(const struct state *s, Mr__Wire__Place ***out, size_t *n, mr_status *st)
{
    Mr__Wire__Place **all = NULL;
    size_t n_all = 0;
    mr_code rc = s->source->class_->places(s->source, &all, &n_all, st);
    *n = 0;
    *out = mr_calloc(n_all + 1, sizeof **out);
    if (rc == MR_OK && !*out)
        rc = mr_fail_memory(st, n_all * sizeof **out, "a position");
    for (size_t i = 0; rc == MR_OK && i < n_all; i++) {
        Mr__Wire__Place home = MR__WIRE__PLACE__INIT;
        home.stream = all[i]->stream;
        home.home = all[i]->home;
        rc = home.home[0] ? mr__wire_copy(&home.base, &(*out)[*n], st) : MR_OK;
        *n += (*out)[*n] != NULL;
    }
    free_places(all, n_all);
    return rc;
}

/* *out = the beginning of the repetition after that of the source. */
static mr_code next_beginning(struct state *s, beginning *out, mr_status *st)
{
    beginning b = {0};
    mr_code rc = mr__wire_copy(&s->source->job->base, &b.job, st);
    if (rc == MR_OK && is_shared(s)) {
        b.job->repetition++;
        if (b.job->mode == MR__WIRE__MODE__PARALLEL_EPOCHS)
            rc = homes_of(s, &b.places, &b.n, st);
    } else if (rc == MR_OK) {
        b.job->repetition++;
        b.places = mr_calloc(s->n + 1, sizeof *b.places);
        if (!b.places)
            rc = mr_fail_memory(st, s->n * sizeof *b.places, "a position");
    }
    for (; rc == MR_OK && b.n < s->n; b.n++) {
        Mr__Wire__Place at, from = MR__WIRE__PLACE__INIT;
        void *position = NULL;
        rc = s->source->class_->place(s->source, s->slots[b.n].stream, &at, st);
        if (rc == MR_OK)
            rc = mr__stream_position_again(at.position.data, at.position.len, at.skip, &position,
                                           &from.position.len, st);
        from.stream = at.stream;
        from.home = at.home;
        from.position.data = position;
        if (rc == MR_OK)
            rc = mr__wire_copy(&from.base, &b.places[b.n], st);
        mr_free(position);
        if (rc != MR_OK)
            break;
    }
    if (rc == MR_OK)
        *out = b;
    else
        free_beginning(&b);
    return rc;
}

/* Leaves a remote service; the dataset's next iterator reads the next repetition. */
static void close_remote(mr_iter *it)
{
    struct state *s = it->state;
    beginning next = s->begin;
    mr_status st;
    bool given_up = mr_iter_cancelled(it);
    s->begin = (beginning){0};
    if (s->source && s->slots && !given_up && next_beginning(s, &next, &st) != MR_OK)
        mr_log(MR_LOG_WARNING, "the next repetition starts like the first: %s", st.message);
    mr__lock_take(&s->shared->lock);
    if (!given_up && !s->shared->next.job) {
        s->shared->next = next;
        next = (beginning){0};
    }
    mr__lock_release(&s->shared->lock);
    free_beginning(&next);
    if (s->source)
        s->source->class_->close(s->source);
    s->source = NULL;
}

/* Keeps the source for the next iterator of this dataset, unless this one was cancelled. */
static void close(mr_iter *it)
{
    struct state *s = it->state;
    say_where_it_stands(s);
    if (s->shared && !is_local(it->params))
        close_remote(it);
    drop_slots(s);
    mr__wire_free(s->job);
    free_beginning(&s->begin);
    if (s->source && !mr_iter_cancelled(it)) {
        mr__lock_take(&s->shared->lock);
        if (!s->shared->source) {
            s->shared->source = s->source;
            s->source = NULL;
            free_beginning(&s->shared->next);
        }
        mr__lock_release(&s->shared->lock);
    }
    if (s->source)
        s->source->class_->close(s->source);
    mr_iter_give_memory(it, s->taken);
}

/* ---- elements ---- */

/* The consumer requests the next elements, so the delivered ones count as consumed. */
static void say_consumed(struct state *s)
{
    for (size_t i = 0; i < s->n_news; i++) {
        slot *t = &s->slots[s->news[i]];
        t->has_news = false;
        if (s->source->class_->stands)
            s->source->class_->stands(s->source, t->stream, t->rows.rows - t->at);
    }
    s->n_news = 0;
}

static void next_turn(struct state *s)
{
    s->b = 0;
    s->c = s->c + 1 == s->n ? 0 : s->c + 1;
}

/* Number of rows to request from a stream: its part of `need` more rows. */
static size_t share(const struct state *s, size_t need, uint64_t length)
{
    size_t rounds = (size_t)(need / (s->n - s->n_ended) / length), rows;
    if (__builtin_add_overflow(rounds, 1, &rounds) ||
        __builtin_mul_overflow(rounds, (size_t)length, &rows))
        return need;
    return rows < need ? rows : need;
}

/* true: to take the turn of the stream of t, or of any stream, may be a long wait. */
static bool would_wait(const struct state *s, const slot *t, bool any)
{
    if (!any)
        return t->at == t->rows.rows && s->source->class_->waits(s->source, t->stream);
    for (size_t i = 0; i < s->n; i++)
        if (!s->slots[i].ended && !s->source->class_->waits(s->source, s->slots[i].stream))
            return false;
    return true;
}

/* Rows of the stream whose turn it is go to out. *full: out is to be delivered first. */
static mr_code take_turn(mr_iter *it, size_t *limit, mr_block *out, bool *full, mr_status *st)
{
    const distribute_params *p = it->params;
    struct state *s = it->state;
    slot *t = &s->slots[s->c];
    uint64_t length = (uint64_t)p->o.block_length, turn = length - s->b;
    bool any = p->o.deterministic == MR_NO && s->source->class_->any && t->at == t->rows.rows;
    if (out->rows && would_wait(s, t, any)) {
        *full = true;
        return MR_OK;
    }
    if (any) {
        uint32_t stream, step = p->o.num_consumers ? (uint32_t)p->o.num_consumers : 1;
        MR_TRY(s->source->class_->any(s->source, &stream, st));
        s->c = stream / step;
        t = &s->slots[s->c];
    }
    if (!t->has_news) {
        t->has_news = true;
        s->news[s->n_news++] = (size_t)(t - s->slots);
    }
    if (t->at == t->rows.rows) {
        mr_code rc = s->source->class_->next(s->source, t->stream,
                                             share(s, *limit - out->rows, length), &t->rows, st);
        t->at = 0;
        if (is_local(p) && s->source->class_->waits(s->source, t->stream))
            mr_iter_set_may_block(it);
        if (rc == MR_END) {
            t->ended = true;
            s->n_ended++;
            next_turn(s);
            return MR_OK;
        }
        if (rc != MR_OK) {
            mr_block_clear(&t->rows);
            return rc;
        }
    }
    if (out->rows == 0)
        *limit = mr_iter_block_rows(it, *limit, mr_block_payload_bytes(&t->rows) / t->rows.rows);
    else if (!mr_block_fits(out, &t->rows)) {
        *full = true;
        return MR_OK;
    }
    size_t n = t->rows.rows - t->at, most = *limit - out->rows;
    /* If the order does not matter, take all rows of the block. */
    if (p->o.deterministic == MR_NO)
        turn = n;
    n = n < turn ? n : (size_t)turn;
    n = n < most ? n : most;
    if (out->rows == 0 && n == *limit) {
        MR_TRY(mr_block_slice(out, &t->rows, t->at, n, st));
    } else {
        if (out->rows == 0)
            MR_TRY(mr_block_start(out, &t->rows, *limit, st));
        MR_TRY(mr_block_append(out, &t->rows, t->at, n, st));
    }
    t->at += n;
    s->b += n;
    if (s->b >= length)
        next_turn(s);
    return MR_OK;
}

static mr_code next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    struct state *s = it->state;
    mr_status error;
    mr_code rc = MR_OK;
    bool full = false;
    if (s->failed)
        return MR_END;
    rc = ensure_source(it, st);
    if (rc != MR_OK) {
        mr_status_of_no_element(st);
        return rc;
    }
    say_consumed(s);
    if (is_shared(s))
        return s->source->class_->next_of_all(s->source, mr_iter_block_rows(it, want, 1), out, st);
    while (rc == MR_OK && !full && (out->rows == 0 || out->rows < want)) {
        if (s->n_ended == s->n)
            rc = MR_END;
        else if (s->slots[s->c].ended)
            next_turn(s);
        else
            rc = take_turn(it, &want, out, &full, &error);
    }
    if (out->rows && rc < 0)
        mr_iter_defer(it, &error);
    else if (rc < 0 && st)
        *st = error;
    return out->rows ? MR_OK : rc;
}

/* ---- position: 0 not begun, 1 failed, 2 begun; unless failed, the job as a message; if begun:
 *   the slot whose turn it is and the elements taken of it (a shared job: 0, 0, number of streams),
 *   then the place of each stream of this client, as a message ---- */

static mr_code put_message(mr_state_w *w, const ProtobufCMessage *m, mr_status *st)
{
    size_t n = protobuf_c_message_get_packed_size(m);
    uint8_t *bytes = mr_malloc(n ? n : 1);
    if (!bytes)
        return mr_fail_memory(st, n, "a position");
    protobuf_c_message_pack(m, bytes);
    mr_code rc = mr_state_put_bytes(w, bytes, n, st);
    mr_free(bytes);
    return rc;
}

static mr_code get_message(mr_state_r *r, const ProtobufCMessageDescriptor *kind, void *out,
                           mr_status *st)
{
    const void *bytes;
    size_t n;
    MR_TRY(mr_state_get_bytes(r, &bytes, &n, st));
    if (mr__wire_unpack(kind, bytes, n, out, st) != MR_OK)
        return mr_state_damaged(st, "an unreadable message");
    return MR_OK;
}

/* Saves the places of the streams that this client of a shared job reads. */
static mr_code save_shared_places(struct state *s, mr_state_w *w, mr_status *st)
{
    Mr__Wire__Place **v = NULL;
    size_t n = 0;
    say_where_it_stands(s);
    mr_code rc = s->source->class_->places(s->source, &v, &n, st);
    if (rc == MR_OK)
        rc = mr_state_put_u64(w, n, st);
    for (size_t i = 0; rc == MR_OK && i < n; i++)
        rc = put_message(w, &v[i]->base, st);
    free_places(v, n);
    return rc;
}

static mr_code save(mr_iter *it, mr_state_w *w, mr_status *st)
{
    struct state *s = it->state;
    enum { NOT_BEGUN, FAILED, BEGUN };
    bool begun = s->slots || s->source || s->begin.job;
    MR_TRY(mr_state_put_u64(w, s->failed ? FAILED : begun ? BEGUN : NOT_BEGUN, st));
    if (s->failed)
        return MR_OK;
    if (s->begin.job) {
        MR_TRY(put_message(w, &s->begin.job->base, st));
        bool come_and_go = is_shared_job(it->params, s->begin.job);
        size_t n = come_and_go ? 0 : s->begin.n;
        MR_TRY(mr_state_put_u64(w, 0, st));
        MR_TRY(mr_state_put_u64(w, 0, st));
        if (come_and_go)
            MR_TRY(mr_state_put_u64(w, n, st));
        for (size_t i = 0; i < n; i++)
            MR_TRY(put_message(w, &s->begin.places[i]->base, st));
        return MR_OK;
    }
    if (!s->slots && !s->source)
        return put_message(w, &s->job->base, st);
    MR_TRY(put_message(w, &s->source->job->base, st));
    if (!s->slots)
        MR_TRY(make_slots(it, s->source->job->streams, st));
    MR_TRY(mr_state_put_u64(w, s->c, st));
    MR_TRY(mr_state_put_u64(w, s->b, st));
    if (is_shared(s))
        MR_TRY(save_shared_places(s, w, st));
    for (size_t i = 0; i < s->n; i++) {
        const slot *t = &s->slots[i];
        Mr__Wire__Place place;
        if (s->source->class_->stands)
            s->source->class_->stands(s->source, t->stream, t->rows.rows - t->at);
        MR_TRY(s->source->class_->place(s->source, t->stream, &place, st));
        MR_TRY(put_message(w, &place.base, st));
    }
    if (s->source->class_->flush)
        s->source->class_->flush(s->source);
    return MR_OK;
}

static mr_code get_places(mr_iter *it, mr_state_r *r, Mr__Wire__Job *job, mr_status *st)
{
    struct state *s = it->state;
    uint64_t c = 0, b = 0, n = 0;
    size_t have = 0;
    bool come_and_go = is_shared_job(it->params, job);
    Mr__Wire__Place **places = NULL;
    if (!come_and_go)
        n = streams_of(it->params, job);
    mr_code rc = mr_state_get_u64(r, &c, st);
    if (rc == MR_OK)
        rc = mr_state_get_u64(r, &b, st);
    if (rc == MR_OK && come_and_go)
        rc = mr_state_get_u64(r, &n, st);
    if (rc == MR_OK && n > MR_MOST_STREAMS)
        rc = mr_state_damaged(st, "too many streams");
    if (rc == MR_OK && !(places = mr_calloc((size_t)n + 1, sizeof *places)))
        rc = mr_fail_memory(st, (size_t)n * sizeof *places, "a position");
    for (; rc == MR_OK && have < n; have++)
        rc = get_message(r, &mr__wire__place__descriptor, &places[have], st);
    if (rc == MR_OK && ((come_and_go ? c != 0 : c >= n) || b >= job->block_length))
        rc = mr_state_damaged(st, "an impossible turn");
    if (rc == MR_OK) {
        rc = open_source(it, job, places, (size_t)n, st);
        job = NULL;
    }
    if (rc == MR_OK) {
        s->c = (size_t)c;
        s->b = b;
        for (size_t i = 0; i < n && !come_and_go; i++) {
            s->slots[i].ended = places[i]->end;
            s->n_ended += places[i]->end != 0;
        }
    }
    free_places(places, have);
    mr__wire_free(job);
    return rc;
}

static mr_code restore(mr_iter *it, mr_state_r *r, mr_status *st)
{
    const distribute_params *p = it->params;
    struct state *s = it->state;
    uint64_t begun;
    Mr__Wire__Job *job = NULL;
    MR_TRY(mr_state_get_u64(r, &begun, st));
    if (begun > 2)
        return mr_state_damaged(st, "an impossible job");
    s->failed = begun == 1;
    drop_slots(s);
    if (s->source)
        s->source->class_->close(s->source);
    s->source = NULL;
    mr__wire_free(s->job);
    s->job = NULL;
    free_beginning(&s->begin);
    if (s->failed)
        return MR_OK;
    MR_TRY(get_message(r, &mr__wire__job__descriptor, &job, st));
    if (job->block_length != (uint64_t)p->o.block_length ||
        (begun == 2 &&
         ((job->streams < 1 && !is_shared_job(p, job)) || job->streams > MR_MOST_STREAMS))) {
        mr__wire_free(job);
        return mr_state_damaged(st, "a job of another graph");
    }
    mr__lock_take(&s->shared->lock);
    s->shared->seed = job->seed;
    s->shared->has_seed = true;
    s->shared->restored = true;
    mr__lock_release(&s->shared->lock);
    if (begun == 2)
        return get_places(it, r, job, st);
    s->job = job;
    return MR_OK;
}

/* ---- shared state: 0 no seed yet, 1 the seed, 2 and where the next repetition begins: the job as
 *   a message, number of places, each as a message ---- */

enum { NO_SEED, SEEDED, BEGINS };

static mr_code shared_of(mr_dataset *node, shared **out, mr_status *st)
{
    void *p;
    MR_TRY(mr_node_shared(node, sizeof(shared), init_shared, destroy_shared, &p, st));
    *out = p;
    return MR_OK;
}

/* Notes the places of the streams that wait for the next iterator. Requires the lock. */
static mr_code note_places(const distribute_params *p, shared *h, mr_status *st)
{
    const Mr__Wire__Job *job = h->source->job;
    beginning b = {0};
    mr_code rc = mr__wire_copy(&job->base, &b.job, st);
    if (rc == MR_OK && !(b.places = mr_calloc(job->streams + (size_t)1, sizeof *b.places)))
        rc = mr_fail_memory(st, job->streams * sizeof *b.places, "a position");
    for (uint32_t i = 0; rc == MR_OK && i < job->streams; i++) {
        Mr__Wire__Place at;
        if (!reads(p, i))
            continue;
        rc = h->source->class_->place(h->source, i, &at, st);
        if (rc == MR_OK)
            rc = mr__wire_copy(&at.base, &b.places[b.n], st);
        b.n += rc == MR_OK;
    }
    if (rc == MR_OK)
        h->next = b;
    else
        free_beginning(&b);
    return rc;
}

static mr_code put_beginning(const shared *h, mr_state_w *w, mr_status *st)
{
    const beginning *b = &h->next;
    MR_TRY(mr_state_put_u64(w, b->job ? BEGINS : h->has_seed ? SEEDED : NO_SEED, st));
    if (!b->job)
        return h->has_seed ? mr_state_put_u64(w, h->seed, st) : MR_OK;
    MR_TRY(put_message(w, &b->job->base, st));
    MR_TRY(mr_state_put_u64(w, b->n, st));
    for (size_t i = 0; i < b->n; i++)
        MR_TRY(put_message(w, &b->places[i]->base, st));
    return MR_OK;
}

static mr_code save_shared(mr_dataset *node, mr_state_w *w, mr_status *st)
{
    shared *h;
    MR_TRY(shared_of(node, &h, st));
    mr__lock_take(&h->lock);
    mr_code rc = MR_OK;
    if (h->source && !h->next.job)
        rc = note_places(mr_dataset_params(node), h, st);
    if (rc == MR_OK)
        rc = put_beginning(h, w, st);
    mr__lock_release(&h->lock);
    return rc;
}

static mr_code get_beginning(const distribute_params *p, beginning *b, mr_state_r *r, mr_status *st)
{
    uint64_t n;
    MR_TRY(get_message(r, &mr__wire__job__descriptor, &b->job, st));
    MR_TRY(mr_state_get_u64(r, &n, st));
    if (b->job->block_length != (uint64_t)p->o.block_length || b->job->streams > MR_MOST_STREAMS ||
        n > MR_MOST_STREAMS || (is_local(p) && n != streams_of(p, b->job)))
        return mr_state_damaged(st, "a job of another graph");
    b->places = mr_calloc((size_t)n + 1, sizeof *b->places);
    if (!b->places)
        return mr_fail_memory(st, (size_t)n * sizeof *b->places, "a position");
    for (; b->n < n; b->n++)
        MR_TRY(get_message(r, &mr__wire__place__descriptor, &b->places[b->n], st));
    return MR_OK;
}

static mr_code restore_shared(mr_dataset *node, mr_state_r *r, mr_status *st)
{
    shared *h;
    uint64_t kind = NO_SEED, seed = 0;
    beginning b = {0};
    MR_TRY(shared_of(node, &h, st));
    if (mr_state_is_of_0_1(r)) /* it had no shared state of this op */
        return MR_OK;
    MR_TRY(mr_state_get_u64(r, &kind, st));
    if (kind > BEGINS)
        return mr_state_damaged(st, "a repetition that cannot be");
    if (kind == SEEDED)
        MR_TRY(mr_state_get_u64(r, &seed, st));
    if (kind == BEGINS) {
        mr_code rc = get_beginning(mr_dataset_params(node), &b, r, st);
        if (rc != MR_OK) {
            free_beginning(&b);
            return rc;
        }
        seed = b.job->seed;
    }
    mr__lock_take(&h->lock);
    mr__stream_source *old = h->source;
    h->source = NULL;
    free_beginning(&h->next);
    h->next = b;
    h->seed = seed;
    h->has_seed = kind != NO_SEED;
    h->restored = h->restored || kind == BEGINS;
    mr__lock_release(&h->lock);
    if (old)
        old->class_->close(old);
    return MR_OK;
}

static const mr_op op_distribute = {
    .abi = MR_ABI_VERSION,
    .name = "distribute",
    .doc = "Runs the graph below it as streams of a data service, and reads them in turn.",
    .example = "range(10).batch(2).distribute(\"local\", streams=2)",
    .order_doc = "an element of each stream in turn",
    .memory_doc = "the blocks that the streams have sent ahead",
    .state_doc = "the position in each stream",
    .count_doc = "the sum over the streams where that is known",
    .params = table,
    .params_size = sizeof(distribute_params),
    .iter_size = sizeof(struct state),
    .min_inputs = 1,
    .max_inputs = 1,
    .role = MR_ROLE_BARRIER,
    .props = MR_OP_OPENS_INPUTS | MR_OP_KEEPS_GRAPH,
    .check = check,
    .infer = infer,
    .cardinality = cardinality,
    .needs = needs,
    .open = open,
    .next = next,
    .close = close,
    .save = save,
    .restore = restore,
    .save_shared = save_shared,
    .restore_shared = restore_shared,
};

/* ---- distributed_dataset: the same for a graph that is registered with the service ---- */

/* The parameters of distribute, with the id after the service. */
static mr_param dataset_table[MOST_PARAMS];

static void fill_dataset_table(void)
{
    size_t n = 0;
    dataset_table[n++] = table[0];
    dataset_table[n++] = (mr_param)MR_ARG(distribute_params, dataset_id,
                                          .doc = "Id that 'millrace service register' printed.");
    for (size_t i = 1; table[i].name && n < MOST_PARAMS - 1; i++)
        dataset_table[n++] = table[i];
}

static void make_dataset_table(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fill_dataset_table);
}

static mr_code dataset_infer(const mr_dataset *self, const void *params, mr_spec **out,
                             mr_status *st)
{
    mr_dataset *ds;
    const char *directory;
    (void)self;
    MR_TRY(registered(params, &ds, &directory, st));
    MR_TRY(check_files(params, ds, st));
    *out = mr_spec_ref(mr_dataset_spec(ds));
    return MR_OK;
}

static const mr_op op_distributed_dataset = {
    .abi = MR_ABI_VERSION,
    .name = "distributed_dataset",
    .doc = "Reads a dataset that was registered with a data service, as streams of the service.",
    .example = "distributed_dataset(\"127.0.0.1:5050\", \"d6f1c3a25b7e9480\")",
    .order_doc = "an element of each stream in turn",
    .memory_doc = "the blocks that the streams have sent ahead",
    .state_doc = "the position in each stream",
    .count_doc = "the sum over the streams where that is known",
    .params = dataset_table,
    .params_size = sizeof(distribute_params),
    .iter_size = sizeof(struct state),
    .role = MR_ROLE_BARRIER,
    .check = check,
    .infer = dataset_infer,
    .cardinality = cardinality,
    .needs = needs,
    .open = open,
    .next = next,
    .close = close,
    .save = save,
    .restore = restore,
    .save_shared = save_shared,
    .restore_shared = restore_shared,
};

/* ---- C interface ---- */

/* In C a timeout of 0 means the default. */
static mr_code take_opts(distribute_params *p, const mr_service_opts *opts, mr_status *st)
{
    if (opts)
        p->o = *opts;
    if (p->o.tls && !(p->o.tls = mr__tls_opts_keep(p->o.tls)))
        return mr_fail_memory(st, sizeof *p->o.tls, "the options of TLS");
    if (p->o.connect_timeout == 0)
        p->o.connect_timeout = CONNECT_TIMEOUT;
    if (p->o.client_timeout == 0)
        p->o.client_timeout = CLIENT_TIMEOUT;
    return MR_OK;
}

mr_dataset *mr_service_dataset(const char *service, const char *dataset_id,
                               const mr_service_opts *opts)
{
    distribute_params p = {.service = (char *)(uintptr_t)service,
                           .dataset_id = (char *)(uintptr_t)dataset_id};
    mr_status st;
    if (take_opts(&p, opts, &st) != MR_OK)
        return mr_dataset_fail(&st);
    make_dataset_table();
    return mr_dataset_new(&op_distributed_dataset, &p, NULL, 0);
}

mr_dataset *mr_service_distribute(mr_dataset *input, const char *service,
                                  const mr_service_opts *opts)
{
    distribute_params p = {.service = (char *)service};
    mr_status st;
    if (take_opts(&p, opts, &st) != MR_OK) {
        mr_dataset_unref(input);
        return mr_dataset_fail(&st);
    }
    return mr_dataset_new(&op_distribute, &p, &input, 1);
}

mr_code mr_service_register_ops(mr_status *st)
{
    if (mr_op_find(op_distribute.name, strlen(op_distribute.name)) == &op_distribute)
        return MR_OK;
    make_dataset_table();
    MR_TRY(mr_op_register(&op_distribute, st));
    return mr_op_register(&op_distributed_dataset, st);
}

/* A remote service in a mode with one stream per worker: chooses how many streams to show. */
static mr_code explain_mode(Mr__Wire__Job *job, mr_explanation *e, mr_status *st)
{
    if (job->streams)
        return MR_OK;
    job->streams = job->mode >= MR__WIRE__MODE__FILE ? 2 : 1;
    if (job->mode == MR__WIRE__MODE__DYNAMIC)
        return mr_explain(e, "mode", NULL, st,
                          "dynamic: its splits (%" PRIu64
                          ") are assigned on demand; workers and clients determine the number of "
                          "streams, each of which is this graph over its own splits",
                          job->splits);
    if (job->mode == MR__WIRE__MODE__PARALLEL_EPOCHS)
        return mr_explain(
            e, "mode", NULL, st,
            "parallel_epochs: every worker has its own stream, which is this whole graph");
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
    if (mr_dataset_op(ds) != &op_distribute && mr_dataset_op(ds) != &op_distributed_dataset)
        return MR_OK;
    Mr__Wire__Job *job = NULL;
    mr_dataset *input;
    const char *directory;
    MR_TRY(graph_of(ds, &input, &directory, st));
    MR_TRY(new_job(mr_dataset_params(ds), input, directory, 0, 0, 0, &job, st));
    mr_code rc = finish_job(&job, st);
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
