/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/engine/memory_limit.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pipeline/engine/executor.h"
#include "pipeline/engine/op_buffering.h"
#include "pipeline/engine/run.h"
#include "pipeline/graph/rewrite.h"
#include "pipeline/log.h"
#include "pipeline/memory/buffer.h"
#include "pipeline/params/infer.h"
#include "pipeline/system/cgroup.h"
#include "pipeline/system/fork.h"
#include "pipeline/system/name_scope.h"
#include "pipeline/system/system.h"
#include "pipeline/system/timed_wait.h"

#define MIB ((int64_t)1 << 20)

/* Constants of the estimate: bytes in addition to those of elements. */
#define PROCESS    (12 * MIB) /* this program, its libraries, the graph */
#define OF_THREAD  MIB        /* stack, the allocator's arena, a block in progress */
#define OF_BLOCK   (MIB / 4)
#define AUTO_OPEN  16
#define BLOCKS     4         /* in flight in an op */
#define OF_FILE    (2 * MIB) /* a chunk of a file, and the rows made of it */
#define POOL_KEEPS (2 * MIB) /* free buffers */
#define OF_BESIDE  (2 * MIB) /* a thread that forwards the blocks of one of several runs */
#define ASKS       16        /* maximum between two samples of the process */
#define BOUND      4         /* times the limit */

#define LOOK_NS         ((int64_t)100000000)
#define LONGEST_WAIT_NS ((int64_t)10 * 1000000000)

/* anonymous: without pages of files and shared memory, which the kernel counts as its cache. */
static int64_t resident(bool anonymous)
{
    char text[128];
    mr__name_scope names = mr__name_scope_enter_own();
    int fd = mr__sys->open("/proc/self/statm", O_RDONLY | O_CLOEXEC, 0);
    (void)mr__name_scope_set(names);
    if (fd < 0)
        return -1;
    ssize_t n = mr__sys->read(fd, text, sizeof text - 1);
    mr__sys->close(fd);
    text[n > 0 ? n : 0] = '\0';
    char *at, *end;
    (void)strtoll(text, &at, 10);
    long long pages = strtoll(at, &end, 10);
    bool good = end != at;
    if (good && anonymous)
        pages -= strtoll(end, NULL, 10);
    return good ? pages * sysconf(_SC_PAGESIZE) : -1;
}

MR_API int64_t mr__memory_resident(void)
{
    return resident(false);
}

/* ---- needs of a graph ---- */

static int64_t add(int64_t a, int64_t b)
{
    return __builtin_add_overflow(a, b, &a) ? INT64_MAX : a;
}

static int64_t times(int64_t a, int64_t b)
{
    return __builtin_mul_overflow(a, b, &a) ? INT64_MAX : a;
}

/* Its elements are batches; it holds one element for each of their rows. */
static bool makes_batches(const mr_op *op)
{
    const uint32_t both = MR_P_HOLDS | MR_P_DIMENSION;
    for (const mr_param *p = op->params; p && p->name; p++)
        if ((p->flags & both) == both)
            return true;
    return false;
}

/* Bytes of the batches that ds makes, or passes on in parts or changed; 0: no batches, or of
 * unknown size. The type does not determine it, because the last batch may be short. */
static int64_t batch_bytes(const mr_dataset *ds)
{
    int64_t elements, bytes;
    while (!makes_batches(mr_dataset_op(ds))) {
        const mr_op *op = mr_dataset_op(ds);
        if (mr_dataset_n_inputs(ds) != 1 || op->role == MR_ROLE_FUNCTION ||
            (op->props & MR_OP_UNBATCHES))
            return 0;
        ds = mr_dataset_input(ds, 0);
    }
    mr_dataset_held(ds, &elements, &bytes);
    return bytes > 0 ? bytes : 0;
}

/* Bytes of n blocks of ds in flight. Of batches, one is made while the consumer has another; the
 * first is counted as held by the op. */
static int64_t blocks_of(const mr_dataset *ds, int64_t n)
{
    size_t row = mr__row_bytes(mr_dataset_spec(ds));
    int64_t bytes = row > INT64_MAX ? INT64_MAX : (int64_t)row;
    int64_t blocks = times(n, bytes > OF_BLOCK ? bytes : OF_BLOCK);
    int64_t batch = row ? 0 : times((n + BLOCKS - 1) / BLOCKS, batch_bytes(ds));
    return batch > blocks ? batch : blocks;
}

/* The parameter `name`; for auto the number of datasets or files open at once, 16. */
static mr_code int_param(const mr_dataset *ds, const char *name, int64_t unset, int64_t *out,
                         mr_status *st)
{
    mr_value v = {0};
    MR_TRY(mr_dataset_param_named(ds, name, &v, st));
    *out = v.kind == MR_V_AUTO ? AUTO_OPEN : v.kind == MR_V_INT && v.i > 0 ? v.i : unset;
    mr_value_reset(&v);
    return MR_OK;
}

static bool has_param(const mr_op *op, const char *name)
{
    for (const mr_param *p = op->params; p && p->name; p++)
        if (strcmp(p->name, name) == 0)
            return true;
    return false;
}

/* The number of files that the op reads at once, and of its function's datasets open at once. */
static mr_code open_at_once(const mr_dataset *ds, int64_t *files, int64_t *datasets, mr_status *st)
{
    const mr_op *op = mr_dataset_op(ds);
    *files = *datasets = 0;
    if (op->role == MR_ROLE_FILES)
        return int_param(ds, "num_parallel_reads", 1, files, st);
    if (op->role != MR_ROLE_FUNCTION)
        return MR_OK;
    bool reads = false;
    MR_TRY(
        int_param(ds, "cycle_length", has_param(op, "cycle_length") ? AUTO_OPEN : 1, datasets, st));
    MR_TRY(mr_dataset_functions_have_role(ds, MR_ROLE_FILES, &reads, st));
    *files = reads ? *datasets : 0;
    return MR_OK;
}

bool mr__memory_guards(const mr_dataset *node)
{
    int64_t elements, bytes;
    mr_dataset_held(node, &elements, &bytes);
    return bytes < 0 && !(mr_dataset_op(node)->props & MR_OP_READS_AHEAD);
}

bool mr__memory_guards_inner(const mr_dataset *node)
{
    int64_t elements, bytes;
    mr_dataset_held(node, &elements, &bytes);
    return mr__memory_guards(node) ||
           (bytes > MIB && !(mr_dataset_op(node)->props & MR_OP_READS_AHEAD));
}

static mr_code needed_by(const mr_dataset *ds, int64_t *bytes, mr_status *st)
{
    int64_t elements, held, files, datasets;
    *bytes = add(*bytes, blocks_of(ds, BLOCKS));
    MR_TRY(open_at_once(ds, &files, &datasets, st));
    *bytes = add(*bytes, times(files, OF_FILE));
    *bytes = add(*bytes, times(datasets, blocks_of(ds, BLOCKS / 2)));
    mr_dataset_held(ds, &elements, &held);
    if (held > 0 && !(mr_dataset_op(ds)->props & MR_OP_READS_AHEAD))
        *bytes =
            add(*bytes, add(held, held / 4)); /* arrays grow by half, and some memory is unused */
    return MR_OK;
}

/* A node used in several places runs in each. Nodes below an op that opens several datasets run
 * that many times. */
static mr_code add_graph(const mr_dataset *ds, int64_t *bytes, const char **unknown, mr_status *st)
{
    mr__nodes nodes;
    MR_TRY(mr__nodes_of(ds, &nodes, st));
    int64_t *sums = mr_calloc(nodes.n, sizeof *sums); /* of a node and all nodes below it */
    const char **lacks =
        mr_calloc(nodes.n, sizeof *lacks); /* likewise: an op of unknown needs, or NULL */
    mr_code rc =
        sums && lacks ? MR_OK : mr_fail_memory(st, nodes.n * sizeof *sums, "what a graph needs");
    const size_t *input = nodes.inputs;
    for (size_t i = 0; i < nodes.n && rc == MR_OK; i++) {
        const mr_op *op = mr_dataset_op(nodes.v[i]);
        int64_t copies = 1, blocks = 0;
        rc = needed_by(nodes.v[i], &sums[i], st);
        if (op->needs)
            op->needs(nodes.v[i], mr_dataset_params(nodes.v[i]), &copies, &blocks);
        sums[i] = add(sums[i], blocks ? blocks_of(nodes.v[i], blocks) : 0);
        for (size_t k = 0; k < mr_dataset_n_inputs(nodes.v[i]); k++, input++) {
            sums[i] = add(sums[i], times(copies, sums[*input]));
            if (!lacks[i] && copies)
                lacks[i] = lacks[*input];
        }
        if (!lacks[i] && mr__memory_guards(nodes.v[i]))
            lacks[i] = op->name;
    }
    if (rc == MR_OK) {
        *bytes = add(*bytes, sums[nodes.n - 1]);
        *unknown = lacks[nodes.n - 1];
    }
    mr_free(lacks);
    mr_free(sums);
    mr__nodes_reset(&nodes);
    return rc;
}

static int64_t threads_of(const mr_iterator_opts *o)
{
    if (o->executor)
        return mr__executor_threads(o->executor);
    return o->has_threads ? o->threads : mr_usable_cpus();
}

/* The process as it is, with the threads of a run. */
static int64_t needed_by_process(const mr_iterator_opts *o)
{
    int64_t now = mr__memory_resident();
    return (now > PROCESS ? (now + MIB - 1) / MIB * MIB : PROCESS) + POOL_KEEPS +
           (threads_of(o) + 1) * OF_THREAD;
}

/* *bytes = the needs of ds and the consumer's slots. */
static mr_code needed_by_graph(const mr_dataset *ds, const mr_iterator_opts *o, int64_t *bytes,
                               const char **unknown, mr_status *st)
{
    *bytes = 0;
    *unknown = NULL;
    MR_TRY(mr_dataset_check(ds, st));
    MR_TRY(add_graph(ds, bytes, unknown, st));
    *bytes = add(*bytes, times(o->memory_slots, batch_bytes(ds)));
    *bytes = add(*bytes, o->memory_taken);
    return MR_OK;
}

mr_code mr_memory_needed(const mr_dataset *ds, const mr_iterator_opts *opts, int64_t *bytes,
                         const char **unknown, mr_status *st)
{
    static const mr_iterator_opts defaults;
    const mr_iterator_opts *o = opts ? opts : &defaults;
    int64_t of_graph;
    MR_TRY(needed_by_graph(ds, o, &of_graph, unknown, st));
    *bytes = add(needed_by_process(o), of_graph);
    return MR_OK;
}

/* ---- a run ---- */

/* The runs with shares_memory, of the whole process. */
static struct {
    pthread_mutex_t lock;
    size_t n;
    int64_t
        process; /* the process's needs without them: the minimum observed; 0: not observed yet */
    int64_t graphs; /* what all of them need */
    mr__memory_sharer *first;
    pthread_cond_t given; /* back */
    bool has_given;       /* is initialized */
    /* process and graphs, for runs that read ahead; what they and the layers above have read
     * ahead. */
    atomic_int_fast64_t needs, ahead;
} beside = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The parent's runs do not continue in a child. */
static void forget_runs(void)
{
    beside.n = 0;
    beside.graphs = 0;
    beside.first = NULL;
    beside.has_given = false;
    beside.ahead = 0;
    mr__buffer_pool_limit(-mr__buffer_pool_limits(), 0);
}
MR__AROUND_FORK(beside.lock, forget_runs)

/* To the system. Blocks that were freed stay resident in the C library while others are above
 * them, and the needs of a run do not count them. */
static void give_back_free(void)
{
    mr_buffer_pool_trim();
    malloc_trim(0);
}

/* For thousands of runs that are small compared with the limit it would take too long. */
static void give_back_free_of(int64_t limit)
{
    if (resident(false) > limit / 4)
        give_back_free();
}

static mr__memory *of_sharer(mr__memory_sharer *s)
{
    return (mr__memory *)((char *)s - offsetof(mr__memory, sharer));
}

/* The lock is held. */
static void set_needs(void)
{
    /* Relaxed: a figure. */
    atomic_store_explicit(&beside.needs, add(beside.process, beside.graphs), memory_order_relaxed);
}

/* Of a limit, after the needs of all runs and what they have read ahead. */
static int64_t left_of(int64_t limit)
{
    /* Relaxed: figures. */
    return limit - atomic_load_explicit(&beside.needs, memory_order_relaxed) -
           atomic_load_explicit(&beside.ahead, memory_order_relaxed);
}

/* Asks those that have read ahead more than an equal share of the room; the lock is held. */
static void ask_back(int64_t limit)
{
    int64_t room = limit - beside.process - beside.graphs;
    if (left_of(limit) >= 0)
        return;
    for (mr__memory_sharer *s = beside.first; s; s = s->next)
        if (s->give_back && !s->asked && of_sharer(s)->ahead > room / (int64_t)beside.n) {
            s->asked = true;
            s->give_back(s->ctx);
        }
}

/* The lock is held. */
static bool some_are_asked(void)
{
    const mr__memory_sharer *s = beside.first;
    while (s && !s->asked)
        s = s->next;
    return s;
}

/* Waits until those that were asked have given back, or there is room; the lock is held. One that
 * does not answer may itself wait for this run, through their common client: then *lacks = the
 * bytes over the limit. */
static mr_code await_given(int64_t limit, const mr_cancel *cancel, int64_t *lacks, mr_status *st)
{
    int64_t until = mr__clock_ns(CLOCK_MONOTONIC) + LONGEST_WAIT_NS;
    while (some_are_asked() && left_of(limit) < 0) {
        if (mr_cancel_is_cancelled(cancel))
            return mr_iter_fail_cancelled(st);
        if (mr__clock_ns(CLOCK_MONOTONIC) > until) {
            *lacks = -left_of(limit);
            break;
        }
        mr__cond_wait_for(&beside.given, &beside.lock, LOOK_NS);
    }
    return MR_OK;
}

static mr_code start_beside(mr__memory *m, const mr_dataset *ds, const mr_iterator_opts *opts,
                            int64_t limit, int64_t *needed, mr_status *st)
{
    const mr__iterator_internal *internal = mr__iterator_internal_of(opts);
    int64_t own;
    const char *unknown;
    MR_TRY(needed_by_graph(ds, opts, &own, &unknown, st));
    own = add(own, OF_BESIDE);
    give_back_free_of(limit);
    pthread_mutex_lock(&beside.lock);
    if (!beside.has_given)
        mr__timed_cond_init(&beside.given);
    beside.has_given = true;
    if (beside.n == 0) { /* memory freed by earlier runs is not all returned to the system */
        int64_t now = needed_by_process(opts);
        beside.process = beside.process && beside.process < now ? beside.process : now;
    }
    size_t n = beside.n;
    int64_t others = add(beside.process, beside.graphs);
    bool fits = add(others, own) <= limit;
    if (fits) {
        beside.n++;
        beside.graphs += own;
        m->beside = own;
        m->sharer = (mr__memory_sharer){beside.first, NULL, internal->give_back,
                                        internal->give_back_ctx, 0};
        if (beside.first)
            beside.first->prev = &m->sharer;
        beside.first = &m->sharer;
        set_needs();
        ask_back(limit);
    }
    *needed = add(others, own);
    int64_t lacks = 0;
    mr_code rc = fits ? await_given(limit, opts->cancel, &lacks, st) : MR_OK;
    pthread_mutex_unlock(&beside.lock);
    if (lacks > 0)
        mr_log(MR_LOG_WARNING,
               "the memory limit of %" PRId64 " bytes may be exceeded by %" PRId64
               ": a graph that runs in the process does not give back what it has read ahead",
               limit, lacks);
    if (fits)
        return rc;
    return mr_fail(st, MR_RESOURCE_EXHAUSTED,
                   "the memory limit is %" PRId64 " bytes, of which the process and the %zu graphs "
                   "that run in it need %" PRId64 "; one more needs %" PRId64
                   ": raise the limit, hold fewer elements, or run fewer graphs at once",
                   limit, n, others, own);
}

static void stop_beside(mr__memory *m, int64_t limit)
{
    if (!m->beside)
        return;
    pthread_mutex_lock(&beside.lock);
    beside.n--;
    beside.graphs -= m->beside;
    if (m->sharer.next)
        m->sharer.next->prev = m->sharer.prev;
    if (m->sharer.prev)
        m->sharer.prev->next = m->sharer.next;
    else
        beside.first = m->sharer.next;
    set_needs();
    pthread_cond_broadcast(&beside.given);
    pthread_mutex_unlock(&beside.lock);
    m->beside = 0;
    give_back_free_of(limit);
}

bool mr__memory_can_give_back(const mr__memory *m, const mr_dataset *ds)
{
    mr__nodes nodes;
    if (atomic_load(&m->reads_pipe) || mr__nodes_of(ds, &nodes, NULL) != MR_OK)
        return false;
    bool caches = false; /* it would be filled again */
    for (size_t i = 0; i < nodes.n; i++)
        caches = caches || (mr_dataset_op(nodes.v[i])->props & MR_OP_REMEMBERS);
    mr__nodes_reset(&nodes);
    return !caches;
}

void mr__memory_gave_back(mr__memory *m)
{
    if (!m->beside)
        return;
    give_back_free_of(m->limit);
    pthread_mutex_lock(&beside.lock);
    m->sharer.asked = false;
    pthread_cond_broadcast(&beside.given);
    pthread_mutex_unlock(&beside.lock);
}

MR_API void mr__memory_held_above(int64_t bytes)
{
    atomic_fetch_add_explicit(&beside.ahead, bytes, memory_order_relaxed); /* a figure */
}

/* The process's memory when a run with a limit was first opened; 0: not yet. */
static atomic_int_fast64_t first_process;

static mr_code start_alone(const mr_dataset *ds, const mr_iterator_opts *opts, int64_t limit,
                           int64_t *needed, mr_status *st)
{
    const char *unknown;
    int64_t graph, process = needed_by_process(opts), none = 0;
    MR_TRY(needed_by_graph(ds, opts, &graph, &unknown, st));
    if (add(process, graph) > limit) { /* free memory is not needed */
        give_back_free();
        process = needed_by_process(opts);
    }
    int64_t first = atomic_load_explicit(&first_process, memory_order_relaxed); /* a figure */
    if (opts->memory_follows && first && first < process)
        process = first;
    *needed = add(process, graph);
    /* Memory that other limited runs hold, and may hold, counts for the process: an additional run,
     * of validation data or of an element that is a dataset, only reads ahead into free room. */
    char taken[64] = "";
    if (opts->memory_taken)
        snprintf(taken, sizeof taken, ", %" PRId64 "M of them the consumer",
                 (opts->memory_taken + MIB - 1) / MIB);
    if (limit < *needed && mr__buffer_pool_limits() == 0)
        return mr_fail(
            st, MR_INVALID_ARGUMENT,
            "memory_limit is %" PRId64 " bytes, but %s at least %" PRId64 " bytes (%" PRId64
            "M)%s%s%s; raise the limit, or hold fewer elements",
            limit, opts->memory_taken ? "the graph and its consumer need" : "the graph needs",
            *needed, *needed / MIB + (*needed % MIB != 0), taken,
            unknown ? " and the elements that it holds in " : "", unknown ? unknown : "");
    /* Relaxed: a figure. */
    atomic_compare_exchange_strong_explicit(&first_process, &none, process, memory_order_relaxed,
                                            memory_order_relaxed);
    return MR_OK;
}

/* Makes the C library return large blocks to the system when they are freed. By default it
 * raises its threshold with each large block freed, and keeps up to twice that size for each
 * thread. */
static void give_back_large(void)
{
    mallopt(M_MMAP_THRESHOLD, MIB);
    mallopt(M_TRIM_THRESHOLD, MIB);
}

/* Eight tenths of memory.max, which counts pages of the kernel too, and nine tenths if a limit was
 * chosen; 0: none. */
static int64_t limit_of_group(bool is_chosen)
{
    int64_t most = mr__cgroup_limits()->memory_max;
    return most == INT64_MAX ? 0 : most - most / 10 * (is_chosen ? 1 : 2);
}

MR_API int64_t mr__memory_limit_in_force(int64_t chosen)
{
    int64_t most = limit_of_group(chosen != 0);
    return most && (chosen == 0 || chosen > most) ? most : chosen;
}

mr_code mr__memory_start(mr__memory *m, const mr_dataset *ds, const mr_iterator_opts *opts,
                         int64_t limit_of_graph, mr_status *st)
{
    int64_t limit = opts->memory_limit ? opts->memory_limit : limit_of_graph, needed = 0;
    if (limit < 0)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "memory_limit must be 0 (none) or more bytes, not %" PRId64, limit);
    int64_t in_force = mr__memory_limit_in_force(limit);
    if (in_force != limit) {
        if (limit)
            mr_log(MR_LOG_WARNING,
                   "the memory limit of %" PRId64 " bytes is more than the control group allows; "
                   "%" PRId64 " apply",
                   limit, in_force);
        limit = in_force;
        m->of_group = true;
    }
    if (limit == 0)
        return MR_OK;
    if (!m->of_group && mr__iterator_internal_of(opts)->shares_memory) {
        mr_code rc = start_beside(m, ds, opts, limit, &needed, st);
        if (rc != MR_OK) {
            stop_beside(m, limit);
            return rc;
        }
    } else if (!m->of_group)
        MR_TRY(start_alone(ds, opts, limit, &needed, st));
    m->limit = limit;
    m->of_service = mr__name_scope_get().of_service;
    atomic_init(&m->for_ahead, limit > needed ? limit - needed : 0);
    m->of_batch = batch_bytes(ds);
    m->threads = threads_of(opts);
    if (!m->of_group) {
        give_back_large();
        mr__buffer_pool_limit(1, POOL_KEEPS);
    }
    return MR_OK;
}

void mr__memory_stop(mr__memory *m)
{
    assert((!m->limit || m->ahead == 0) && "what was counted as ahead is counted back");
    if (m->limit && !m->of_group)
        mr__buffer_pool_limit(-1, POOL_KEEPS);
    stop_beside(m, m->limit);
    m->limit = 0;
}

/* Bytes that all limited runs have read ahead so far. A sample of the process is outdated once
 * any of them has made another block, which may have used the memory that was free. */
static atomic_int_fast64_t made_ahead;

void mr__memory_ahead(const mr_iter *it, int64_t bytes)
{
    mr__memory *m = &it->run->memory;
    /* Relaxed: figures. */
    if (m->limit && bytes)
        atomic_fetch_add_explicit(&m->ahead, bytes, memory_order_relaxed);
    if (m->beside && bytes)
        atomic_fetch_add_explicit(&beside.ahead, bytes, memory_order_relaxed);
    if (m->limit && bytes > 0)
        atomic_fetch_add_explicit(&made_ahead, bytes, memory_order_relaxed);
}

/* Resident bytes now; if they exceed `most`, first returns free memory to the system. */
static int64_t look(mr__memory *m, int64_t most)
{
    int64_t made = atomic_load_explicit(&made_ahead, memory_order_relaxed);
    int64_t now = resident(m->of_group);
    if (now > most) {
        give_back_free();
        now = resident(m->of_group);
    }
    /* Relaxed: figures. */
    atomic_store_explicit(&m->sample, now, memory_order_relaxed);
    atomic_store_explicit(&m->sampled_at, made, memory_order_relaxed);
    return now;
}

size_t mr__memory_most_of_one(const mr__memory *m)
{
    return (size_t)(m->of_service ? m->limit / 2 : times(m->limit, BOUND));
}

bool mr__memory_limited(const mr_iter *it)
{
    return it->run->memory.limit != 0 && !it->run->memory.of_group;
}

int64_t mr__memory_take(mr__memory *m, int64_t bytes)
{
    if (!m->limit)
        return bytes;
    /* Relaxed: a figure. Read-ahead may keep half of the memory available. */
    int64_t left = atomic_load_explicit(&m->for_ahead, memory_order_relaxed), n;
    do {
        n = bytes < left / 2 ? bytes : left / 2;
    } while (!atomic_compare_exchange_weak_explicit(&m->for_ahead, &left, left - n,
                                                    memory_order_relaxed, memory_order_relaxed));
    return n;
}

int64_t mr_iter_take_memory(mr_iter *it, int64_t most)
{
    return mr__memory_take(&it->run->memory, most);
}

void mr_iter_give_memory(mr_iter *it, int64_t bytes)
{
    /* Relaxed: a figure. */
    if (it->run->memory.limit)
        atomic_fetch_add_explicit(&it->run->memory.for_ahead, bytes, memory_order_relaxed);
}

bool mr__memory_room(const mr_iter *it, size_t bytes)
{
    return mr__memory_has_room(&it->run->memory, bytes);
}

bool mr__memory_has_room(mr__memory *m, size_t bytes)
{
    if (!m->limit)
        return true;
    int64_t one = bytes > OF_BLOCK ? (int64_t)bytes : OF_BLOCK;
    /* Relaxed: figures; other threads may check at the same time, so memory for one block per
     * thread of each limited run stays free. */
    int64_t ahead = atomic_load_explicit(&m->ahead, memory_order_relaxed);
    int64_t runs = mr__buffer_pool_limits() + m->of_group;
    int64_t free_for_all = times(one, (m->threads + 1) * runs);
    free_for_all = add(free_for_all, m->beside ? times(OF_BESIDE, runs) : 0);
    if (add(ahead, one) > atomic_load_explicit(&m->for_ahead, memory_order_relaxed))
        return false;
    if (m->beside && one > left_of(m->limit))
        return false;
    int64_t most = m->limit - free_for_all;
    unsigned asked = atomic_fetch_add_explicit(&m->asked, 1, memory_order_relaxed);
    int64_t made = atomic_load_explicit(&made_ahead, memory_order_relaxed);
    int64_t at = atomic_load_explicit(&m->sampled_at, memory_order_relaxed);
    int64_t seen = atomic_load_explicit(&m->sample, memory_order_relaxed);
    if (asked % ASKS == 0 || made - at >= OF_BLOCK || one >= MR__LARGE_BLOCK)
        seen = look(m, most);
    return seen <= most;
}

void mr__memory_guard(const mr_iter *it)
{
    it->inputs[0]->priv->guarded = it->run->memory.limit > 0;
}

mr_code mr__memory_check(const mr_iter *it, mr_status *st)
{
    mr__memory *m = &it->run->memory;
    /* The limit of a control group was not requested, so it must not cost a system call a pull. */
    if (m->of_group && atomic_fetch_add_explicit(&m->asked, 1, memory_order_relaxed) % ASKS != 0)
        return MR_OK;
    /* Relaxed: a figure. Read-ahead is given up first. */
    if (atomic_load_explicit(&m->ahead, memory_order_relaxed) > 0 ||
        resident(m->of_group) <= m->limit)
        return MR_OK;
    int64_t now = look(m, m->limit);
    if (now <= m->limit)
        return MR_OK;
    mr_fail(st, MR_RESOURCE_EXHAUSTED,
            "the memory limit of %" PRId64 " bytes%s is reached: %" PRId64
            " bytes are in use, and '%s' needs to hold more; raise %s, or hold fewer "
            "elements",
            m->limit, m->of_group ? " that the control group sets" : "", now, it->op->name,
            m->of_group ? "the group's memory.max" : "memory_limit");
    if (st)
        st->sys_errno = ENOMEM; /* a retry may succeed */
    mr_status_of_no_element(st);
    return MR_RESOURCE_EXHAUSTED;
}

void mr__memory_made(const mr_iter *it, size_t bytes, size_t gone)
{
    mr__memory *m = &it->run->memory;
    bool large = bytes > OF_BLOCK && times(BLOCKS, (int64_t)bytes) > m->for_ahead;
    /* Relaxed: a figure. */
    if (!m->limit || !large || atomic_load_explicit(&m->has_warned, memory_order_relaxed))
        return;
    int64_t now = resident(m->of_group) + (int64_t)gone;
    if (now <= m->limit || atomic_exchange(&m->has_warned, true))
        return;
    mr_log(MR_LOG_WARNING,
           "an element of %zu bytes that '%s' made takes the process to %" PRId64
           " bytes, over the memory limit of %" PRId64
           ": one element is never divided; raise the limit, or make smaller elements",
           bytes, it->op->name, now, m->limit);
}
