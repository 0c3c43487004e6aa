/* SPDX-License-Identifier: Apache-2.0 */
/* Distributed datasets: the graph that each worker runs. */
#include "shard/distribute/distribute.h"
#include "pipeline/engine/iterator_internal.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/system/callback_code.h"
#include "shard/distribute/dist_impl.h"
#include "shard/passes/own_files.h"
#include "shard/passes/shard_passes.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MAX_REPLICAS = 1 << 20 };
/* Added to a policy: parts made by it for workers, not for the streams of a service. */
enum { WORKERS = 16 };

/* ---- options ---- */

static mr_code read_opts(mr_dist_dataset *dd, const mr_distribute_opts *o, mr_status *st)
{
    static const mr_cluster alone;
    const mr_cluster *cluster = o->cluster ? o->cluster : &alone;
    dd->workers = o->num_workers;
    dd->worker = o->worker;
    if (o->num_workers == 0) {
        dd->workers = mr_cluster_num_workers(cluster);
        if (o->cluster)
            MR_TRY(mr_cluster_worker(cluster, &dd->worker, st));
    }
    dd->local = o->num_local_workers ? o->num_local_workers : 1;
    dd->replicas = o->replicas ? o->replicas : 1;
    if (dd->workers < 1 || dd->workers > MAX_REPLICAS)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the number of workers must be 1 to %d, not %" PRId64, (int)MAX_REPLICAS,
                       dd->workers);
    if (dd->replicas < 1 || dd->replicas > MAX_REPLICAS)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the number of replicas must be 1 to %d, not %" PRId64, (int)MAX_REPLICAS,
                       dd->replicas);
    if (dd->worker < 0 || dd->worker >= dd->workers)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the worker's index must be 0 to %" PRId64 ", not %" PRId64, dd->workers - 1,
                       dd->worker);
    if (dd->local < 1 || dd->local > dd->workers - dd->worker)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "worker %" PRId64 " and %" PRId64
                       " more were requested, but the job has %" PRId64,
                       dd->worker, dd->local - 1, dd->workers);
    if (o->has_policy && (unsigned)o->policy >= MR_N_SHARD_POLICIES)
        return mr_fail(st, MR_INVALID_ARGUMENT, "invalid auto-shard policy %d", (int)o->policy);
    dd->has_policy = o->has_policy;
    dd->asked = o->policy;
    dd->owns_slots = o->owns_slots;
    dd->elastic.streams = o->elastic_streams;
    if (o->elastic_streams < 0)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the number of elastic streams must not be negative, is %" PRId64,
                       o->elastic_streams);
    dd->seed_given = o->has_seed;
    dd->has_seed = o->has_seed || dd->workers > 1;
    /* Without a seed, derive it only from facts about the job that all workers know. */
    dd->seed = o->has_seed ? o->seed
                           : mr_cluster_hash(cluster) + (uint64_t)dd->workers * 1000003u +
                                 (uint64_t)dd->replicas;
    return MR_OK;
}

/* ---- graphs ---- */

static mr_code rewrite(const mr_dist_dataset *dd, int64_t worker, mr_dataset **out,
                       mr_shard_policy *policy, int64_t *absorbed, mr_explanation *e, mr_status *st)
{
    mr_auto_shard_opts o = {dd->workers, worker, dd->workers * dd->replicas, dd->asked};
    mr_dataset *seeded = NULL, *own = NULL, *sliced = NULL, *sharded = NULL;
    mr_shard_policy chosen;
    int64_t depth = 0;
    mr_code rc = MR_OK;
    if (!dd->has_policy)
        rc = mr_shard_policy_of(dd->original, &o.policy, st);
    const mr_parts parts = {
        .index = worker, .n = dd->workers, .what = "workers", .how = WORKERS + (uint64_t)o.policy};
    if (rc == MR_OK && dd->has_seed)
        rc = mr_seed_random_ops(dd->original, dd->seed, &seeded, e, st);
    else if (rc == MR_OK)
        seeded = mr_dataset_ref(dd->original);
    if (rc == MR_OK && dd->workers > 1)
        rc = mr_own_files(seeded, &parts, &own, st);
    if (rc == MR_OK)
        rc = mr_slice_for_replicas(own ? own : seeded, o.num_replicas, &sliced, e, st);
    if (rc == MR_OK)
        rc = mr_auto_shard(sliced, &o, &sharded, &chosen, e, st);
    if (rc == MR_OK && dd->owns_slots)
        rc = mr__absorb_prefetch(sharded, out, &depth, e, st);
    else if (rc == MR_OK)
        *out = mr_dataset_ref(sharded);
    if (rc == MR_OK && policy)
        *policy = chosen;
    if (rc == MR_OK && absorbed)
        *absorbed = depth;
    mr_dataset_unref(sharded);
    mr_dataset_unref(sliced);
    mr_dataset_unref(own);
    mr_dataset_unref(seeded);
    return rc;
}

static mr_code call_function(const mr_dist_dataset *dd, int64_t worker, mr_dataset **out,
                             int64_t *absorbed, mr_explanation *e, mr_status *st)
{
    const mr_input_context c = {dd->workers, worker, dd->workers * dd->replicas};
    mr_dataset *made = NULL;
    mr_status why;
    mr_status_init(&why);
    MR_TRY(mr__callback_passed(dd->fn(dd->ctx, &c, &made, &why), "the input function", &why, st));
    if (!made)
        return mr_fail(st, MR_FAILED_PRECONDITION, "the input function returned no dataset");
    mr_code rc = mr_dataset_check(made, st);
    if (rc == MR_OK)
        rc = mr_explain(e, "policy", NULL, st,
                        "an input function shards and batches by itself: nothing is added");
    int64_t depth = 0;
    if (rc == MR_OK && dd->owns_slots)
        rc = mr__absorb_prefetch(made, out, &depth, e, st);
    else if (rc == MR_OK)
        *out = mr_dataset_ref(made);
    if (rc == MR_OK && absorbed)
        *absorbed = depth;
    mr_dataset_unref(made);
    return rc;
}

mr_code mr__dist_graph(const mr_dist_dataset *dd, int64_t worker, mr_dataset **out,
                       mr_shard_policy *policy, int64_t *absorbed, mr_explanation *e, mr_status *st)
{
    if (dd->original)
        return rewrite(dd, worker, out, policy, absorbed, e, st);
    if (policy)
        *policy = MR_SHARD_OFF;
    return call_function(dd, worker, out, absorbed, e, st);
}

mr_iterator_opts mr__dist_run_opts(const mr_dist_dataset *dd, const mr_iterator_opts *run)
{
    static const mr__iterator_internal seed_made_up = {.seed_made_up = true};
    mr_iterator_opts o = *run;
    /* Random ops inside functions draw from the job's seed too. */
    if (!o.has_seed && dd->has_seed) {
        o.has_seed = true;
        if (!dd->seed_given)
            o.internal = &seed_made_up;
        o.seed = dd->seed;
    }
    return o;
}

/* The merged spec of the workers' graphs; the batch dimension is unknown unless the data never
 * end. */
static mr_code make_spec(mr_dist_dataset *dd, mr_status *st)
{
    mr_spec *spec = mr_spec_ref(mr_dataset_spec(dd->graphs[0]));
    bool endless = true;
    mr_leaf *leaves = NULL;
    mr_code rc = MR_OK;
    for (int64_t i = 0; i < dd->local; i++) {
        const mr_spec *other = mr_dataset_spec(dd->graphs[i]);
        endless = endless && mr_dataset_cardinality(dd->original ? dd->original : dd->graphs[i]) ==
                                 MR_INFINITE;
        if (!mr_spec_same_types(spec, other)) {
            rc = mr_fail(st, MR_FAILED_PRECONDITION,
                         "the input function returned elements of other types for worker %" PRId64
                         " than for worker %" PRId64,
                         dd->worker + i, dd->worker);
            goto out;
        }
        mr_spec *merged = mr_spec_merge(spec, other);
        mr_spec_unref(spec);
        spec = merged;
        if (!spec)
            goto memory;
    }
    if (endless) {
        dd->spec = mr_spec_ref(spec);
        goto out;
    }
    size_t n = mr_spec_n_leaves(spec);
    leaves = mr_calloc(n ? n : 1, sizeof *leaves);
    if (!leaves)
        goto memory;
    for (size_t i = 0; i < n; i++) {
        leaves[i] = *mr_spec_leaf(spec, i);
        if (leaves[i].rank > 0)
            leaves[i].shape[0] = -1;
    }
    dd->spec = mr_spec_with_leaves(spec, leaves);
    if (dd->spec)
        goto out;
memory:
    rc = mr_fail_memory(st, sizeof(mr_leaf), "the spec of a distributed dataset");
out:
    mr_free(leaves);
    mr_spec_unref(spec);
    return rc;
}

/* Names ds and the ops below it, which run in full in each process, and how much that is. */
static mr_code explain_whole(mr_dist_dataset *dd, const mr_dataset *ds, mr_status *st)
{
    int64_t n = mr_dataset_cardinality(ds);
    char elements[64] = "an unknown number of elements";
    for (size_t i = 0; i < mr_dataset_n_inputs(ds); i++)
        MR_TRY(explain_whole(dd, mr_dataset_input(ds, i), st));
    if (n >= 0)
        snprintf(elements, sizeof elements, "%" PRId64 " element%s", n, n == 1 ? "" : "s");
    const char *op = mr_dataset_op(ds)->name;
    return mr_explain(&dd->explanation, "runs in full", op, st,
                      "%s runs in full in each process, which makes %s, and needs 1 of %" PRId64,
                      op, n == MR_INFINITE ? "all elements" : elements, dd->workers);
}

/* How many streams the replicas have. */
static mr_code explain_elastic(mr_dist_dataset *dd, mr_status *st)
{
    const mr__elastic *x = &dd->elastic;
    int64_t n = dd->workers * dd->replicas, least = x->streams / n;
    int64_t most = least + (x->streams % n != 0);
    char balance[96] = "";
    mr__matched m = {0};
    mr__elastic_wholes wholes = {0};
    mr_dataset *first = NULL;
    uint64_t seed;
    if (most > least)
        snprintf(
            balance, sizeof balance,
            ", %.2f times as many for some replicas as for others; choose a multiple of %" PRId64,
            (double)most / (double)least, n);
    MR_TRY(mr_explain(&dd->explanation, "policy", NULL, st,
                      "the job is elastic: it is cut below its global batch of %" PRId64
                      " into %" PRId64 " streams, %" PRId64 " for a replica%s",
                      x->batch, x->streams, most, balance));
    mr_code rc =
        mr__elastic_stream(x, &m, 0, dd->seed, &wholes, &first, &seed, &dd->explanation, st);
    for (size_t i = 0; i < wholes.n && dd->workers > 1 && rc == MR_OK; i++)
        rc = explain_whole(dd, wholes.v[i].ds, st);
    mr__elastic_wholes_reset(&wholes);
    mr__matched_reset(&m);
    mr_dataset_unref(first);
    return rc;
}

static mr_code build_elastic(mr_dist_dataset *dd, mr_status *st)
{
    int64_t streams = dd->elastic.streams, n = dd->workers * dd->replicas;
    dd->elastic.streams = 0;
    MR_TRY(mr__elastic_init(&dd->elastic, dd->original, streams, &dd->explanation, st));
    if (n > streams)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "%" PRId64 " replicas cannot share %" PRId64
                       " elastic streams; use at least as many streams as replicas",
                       n, streams);
    if (!dd->seed_given) { /* the same for any number of workers */
        dd->has_seed = true;
        dd->seed = 0;
    }
    dd->policy = MR_SHARD_OFF;
    dd->absorbed = dd->elastic.prefetched;
    for (int64_t i = 0; i < dd->local; i++)
        dd->graphs[i] = mr_dataset_ref(dd->elastic.steps);
    MR_TRY(explain_elastic(dd, st));
    return make_spec(dd, st);
}

static mr_code build(mr_dist_dataset *dd, mr_status *st)
{
    dd->graphs = mr_calloc((size_t)dd->local, sizeof(mr_dataset *));
    if (!dd->graphs)
        return mr_fail_memory(st, (size_t)dd->local * sizeof(mr_dataset *),
                              "a distributed dataset");
    if (dd->original && dd->elastic.streams == 0)
        MR_TRY(mr__elastic_option(dd->original, &dd->elastic.streams, st));
    if (dd->elastic.streams && !dd->original)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "an input function shards by itself, so its job cannot be elastic");
    if (dd->elastic.streams)
        return build_elastic(dd, st);
    for (int64_t i = 0; i < dd->local; i++)
        MR_TRY(mr__dist_graph(dd, dd->worker + i, &dd->graphs[i], &dd->policy, &dd->absorbed,
                              i ? NULL : &dd->explanation, st));
    return make_spec(dd, st);
}

static mr_code finish(mr_dist_dataset *dd, mr_code rc, mr_dist_dataset **out, mr_status *st)
{
    if (rc == MR_OK)
        rc = build(dd, st);
    if (rc == MR_OK)
        *out = dd;
    else
        mr_dist_dataset_free(dd);
    return rc;
}

static mr_dist_dataset *new_dist(mr_status *st)
{
    mr_dist_dataset *dd = mr_calloc(1, sizeof *dd);
    if (!dd)
        mr_fail_memory(st, sizeof *dd, "a distributed dataset");
    return dd;
}

mr_code mr_distribute_dataset(mr_dataset *ds, const mr_distribute_opts *opts, mr_dist_dataset **out,
                              mr_status *st)
{
    static const mr_distribute_opts defaults;
    MR_TRY(mr_dataset_check(ds, st));
    mr_dist_dataset *dd = new_dist(st);
    if (!dd)
        return MR_RESOURCE_EXHAUSTED;
    dd->original = mr_dataset_ref(ds);
    return finish(dd, read_opts(dd, opts ? opts : &defaults, st), out, st);
}

mr_code mr_distribute_from_function(mr_input_fn fn, void *ctx, const mr_distribute_opts *opts,
                                    mr_dist_dataset **out, mr_status *st)
{
    static const mr_distribute_opts defaults;
    mr_dist_dataset *dd = new_dist(st);
    if (!dd)
        return MR_RESOURCE_EXHAUSTED;
    dd->fn = fn;
    dd->ctx = ctx;
    return finish(dd, read_opts(dd, opts ? opts : &defaults, st), out, st);
}

static mr_code parse_for_worker(void *ctx, const mr_input_context *c, mr_dataset **out,
                                mr_status *st)
{
    const mr_dist_dataset *dd = ctx;
    mr_input_env env;
    mr_input_env_init(&env, c);
    return mr_dataset_from_text(dd->text, dd->text_size, &env.env, out, st);
}

mr_code mr_distribute_from_text(const char *text, size_t size, const mr_distribute_opts *opts,
                                mr_dist_dataset **out, mr_status *st)
{
    static const mr_distribute_opts defaults;
    mr_dist_dataset *dd = new_dist(st);
    if (!dd)
        return MR_RESOURCE_EXHAUSTED;
    dd->text = mr_strndup(text, size);
    dd->text_size = size;
    dd->fn = parse_for_worker;
    dd->ctx = dd;
    mr_code rc = dd->text ? read_opts(dd, opts ? opts : &defaults, st)
                          : mr_fail_memory(st, size, "the text of an input function");
    return finish(dd, rc, out, st);
}

void mr_dist_dataset_free(mr_dist_dataset *dd)
{
    if (!dd)
        return;
    for (int64_t i = 0; dd->graphs && i < dd->local; i++)
        mr_dataset_unref(dd->graphs[i]);
    mr_free(dd->graphs);
    mr_dataset_unref(dd->original);
    mr__elastic_reset(&dd->elastic);
    mr_spec_unref(dd->spec);
    mr_explanation_reset(&dd->explanation);
    mr_free(dd->text);
    mr_free(dd);
}

/* ---- properties ---- */

const mr_explanation *mr_dist_dataset_explanation(const mr_dist_dataset *dd)
{
    return &dd->explanation;
}

mr_dataset *mr_dist_dataset_graph(const mr_dist_dataset *dd, size_t local)
{
    return dd->graphs[local];
}

mr_shard_policy mr_dist_dataset_policy(const mr_dist_dataset *dd)
{
    return dd->policy;
}

const mr_spec *mr_dist_dataset_spec(const mr_dist_dataset *dd)
{
    return dd->spec;
}

int64_t mr_dist_dataset_elastic_streams(const mr_dist_dataset *dd)
{
    return dd->elastic.streams;
}

int64_t mr_dist_dataset_cardinality(const mr_dist_dataset *dd)
{
    int64_t n = mr_dataset_cardinality(dd->original ? dd->original : dd->graphs[0]);
    if (n < 0)
        return n;
    if (dd->elastic.streams) /* streams may end in different steps */
        return MR_UNKNOWN_COUNT;
    if (!dd->original)
        return dd->workers == 1 ? n / dd->replicas + (n % dd->replicas != 0) : MR_UNKNOWN_COUNT;
    /* Each global batch has N slices: one step of all workers, or W steps of each one alone. */
    if (dd->workers == 1 || dd->policy == MR_SHARD_DATA)
        return n;
    int64_t steps;
    if (dd->policy == MR_SHARD_OFF && !__builtin_mul_overflow(n, dd->workers, &steps))
        return steps;
    return MR_UNKNOWN_COUNT;
}

int64_t mr_dist_dataset_absorbed_prefetch(const mr_dist_dataset *dd)
{
    return dd->absorbed;
}

int64_t mr_dist_dataset_num_workers(const mr_dist_dataset *dd)
{
    return dd->workers;
}

int64_t mr_dist_dataset_parts(const mr_dist_dataset *dd)
{
    return dd->original && !dd->elastic.streams ? dd->workers : 1;
}

int64_t mr_dist_dataset_num_replicas_in_sync(const mr_dist_dataset *dd)
{
    return dd->workers * dd->replicas;
}

int64_t mr_dist_dataset_number_rows(const mr_dist_dataset *dd, const int64_t *rows, int64_t *first)
{
    /* In the order of the slices: the replica varies slowest under DATA, else the worker. */
    bool dealt = dd->policy == MR_SHARD_DATA;
    int64_t n = 0, outer = dealt ? dd->replicas : dd->workers;
    int64_t inner = dealt ? dd->workers : dd->replicas;
    for (int64_t i = 0; i < outer; i++)
        for (int64_t k = 0; k < inner; k++) {
            int64_t at = dealt ? k * dd->replicas + i : i * dd->replicas + k;
            first[at] = n;
            n += rows[at];
        }
    return n;
}

int64_t mr_dist_dataset_worker(const mr_dist_dataset *dd)
{
    return dd->worker;
}

int64_t mr_dist_dataset_num_local_workers(const mr_dist_dataset *dd)
{
    return dd->local;
}
