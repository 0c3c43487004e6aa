/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_GRAPH_OP_H
#define MR_PIPELINE_GRAPH_OP_H
/* An op is data: one descriptor, at the end of its file in pipeline/ops/. The text form, the
 * protobuf form, `millrace ops`, the reference page and all checks of arguments come from it; no
 * other code knows an op by name.
 *
 * This is a whole op, first(count), which emits the first elements of its input. Its parameters:
 *
 *     struct params {
 *         int64_t count;
 *     };
 *     static const mr_param table[] = {
 *         MR_ARG(struct params, count, .max.i = INT64_MAX, .doc = "Elements to emit."), {0}};
 *
 * Its open, next, save and restore are in the head of engine/op_iterator.h, which has what such
 * functions may call. The descriptor:
 *
 *     static const mr_op first = {
 *         .abi = MR_ABI_VERSION,
 *         .name = "first",
 *         .doc = "Emits the first elements and ends.",
 *         .example = "range(5).first(3)",
 *         .params = table,
 *         .params_size = sizeof(struct params),
 *         .iter_size = sizeof(struct state),
 *         .min_inputs = 1,
 *         .max_inputs = 1,
 *         .role = MR_ROLE_PASS,
 *         .open = open,
 *         .next = next,
 *         .save = save,
 *         .restore = restore,
 *     };
 *
 * After mr_op_register(&first, &st) text may say range(5).first(3), and a constructor in C is a
 * call of mr_dataset_new. An op with options has their public struct as the field `o` of its
 * params, and MR_OPT for each of them in its table.
 *
 * thread   descriptors are static and immutable
 * since    0.1 */
#include "dataset.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the walk that shards by file, from the sink to the sources, does at an op
 * (docs/sharding.md). */
typedef enum mr_role {
    MR_ROLE_BARRIER, /* stops: files below it cannot be divided */
    MR_ROLE_SOURCE,  /* stops: the op reads no files */
    MR_ROLE_FILES,   /* has arrived: the op reads the files that its parameter MR_P_PATTERN lists */
    MR_ROLE_PASS,    /* continues at input 0, unless a function of the op reads files: then the
                         elements of input 0 are divided */
    MR_ROLE_FUNCTION, /* as PASS; the op makes its elements from the datasets that its function
                         returns, so that datasets as elements can be divided too */
    MR_ROLE_PARALLEL  /* continues at every input */
} mr_role;

/* Traits of an op, which the engine and the rewrites go by; an op may have any of them. */
enum {
    MR_OP_KEEPS_COUNT = 1,      /* emits as many elements as input 0 has */
    MR_OP_MAY_BLOCK = 2,        /* next may wait for an outside producer */
    MR_OP_NO_REPLAY = 4,        /* cannot produce the same again (a generator without a position,
                                   deterministic=false): queues above save their rows */
    MR_OP_OPENS_INPUTS = 8,     /* open opens the inputs itself (or later); otherwise the engine
                                   opens all of them before open */
    MR_OP_RANDOM = 16,          /* draws from its parameter seed; unseeded, from a fresh one */
    MR_OP_INTERNAL = 32,        /* not for users: left out of the reference */
    MR_OP_SOURCE_CALL = 64,     /* in text a function, not a method, although it has inputs (zip) */
    MR_OP_REORDERS = 128,       /* emits its one input's elements (a source: its own) in another
                                   order: a shard of files goes below it */
    MR_OP_TRAILS = 256,         /* where it ends a graph, a shard of the data goes below it */
    MR_OP_READS_AHEAD = 512,    /* by its parameter buffer_size: a consumer with slots of its own
                                   takes the depth over and drops the op where it trails */
    MR_OP_HOLDS_OPTIONS = 1024, /* its parameters are options of the whole graph */
    MR_OP_OF_WHOLE = 2048,      /* states what holds for the whole input only: dropped where each
                                   worker has a part of it */
    MR_OP_SHARDS = 4096,        /* keeps every num_shards-th element, from index; num_shards=-1
                                   is a hint that the HINT policy replaces */
    MR_OP_FILE_NAMES = 8192,    /* a source whose elements are names of files */
    MR_OP_OPENS_LATER = 16384,  /* opens inputs while it runs: the same again, or the next */
    MR_OP_LISTS_INPUTS = 65536, /* with SOURCE_CALL: in text its inputs stand in a list, but for the
                                   last min_inputs - 1, which follow it */
    MR_OP_REMEMBERS = 131072,   /* what was pulled of it counts in later iterators too (cache): an
                                   op above that may end before its input must not pull more than
                                   its element-at-a-time definition does */
    MR_OP_COUNTS = 262144,      /* its elements are the numbers that its parameters start, stop and
                                   step say, as Python's range */
    MR_OP_COUNTS_LATE = 524288, /* how many elements it has is looked up in files: `cardinality` is
                                   called when somebody wants to know, not when the node is made */
    MR_OP_OF_RECORDS = 1048576, /* goes to any record of its input, which reads files: that must
                                   stay the op that it is */
    MR_OP_TAKES_APART = 2097152, /* its elements are the rows of those of its input (unbatch): a
                                    batch below it is no batch above */
    MR_OP_KEEPS_SHARDS = 32768 /* a shard of its input (of each, where it has several) gives a shard
                                   of its output: it treats each element alone, or only groups and
                                   reorders them. Without it, each stream of a service runs the op
                                   and what is below it on all elements
                                   (shard/streams/stream_cut.h) */
};

struct mr_iter;
struct mr_state_w;
struct mr_state_r;
struct mr_block;

typedef struct mr_op {
    uint32_t abi;                     /* MR_ABI_VERSION */
    const char *name, *doc, *example; /* example: text form, printed in the docs, run by tests */
    /* For the reference, a phrase each. NULL: the input's order; a block of elements; no state but
     * that of the inputs; as many elements (n) as input 0 has, or an unknown number. */
    const char *order_doc, *memory_doc, *state_doc, *count_doc;
    const mr_param *params;          /* ends with name == NULL; NULL: none */
    uint32_t params_size, iter_size; /* the engine allocates, zeroes and frees both */
    int8_t min_inputs, max_inputs;   /* -1: any number */
    mr_role role;
    uint32_t props;
    /* What the table can't say; NULL: nothing. Called with every parameter known. */
    mr_code (*check)(const void *p, mr_status *st);
    /* *out = the element's spec, owned. An unknown parameter (mr_param_unknown) has its default.
     * NULL: elements are as those of input 0. */
    mr_code (*infer)(const mr_dataset *self, const void *p, mr_spec **out, mr_status *st);
    /* Number of elements, MR_INFINITE or MR_UNKNOWN_COUNT; in[i] that of input i. NULL: that of
     * input 0 with MR_OP_KEEPS_COUNT, else unknown. */
    int64_t (*cardinality)(const mr_dataset *self, const void *p, const int64_t *in);
    /* p is the params struct; it->state is iter_size zeroed bytes. close sees every partial
     * state. */
    mr_code (*open)(struct mr_iter *it, mr_status *st);
    mr_code (*next)(struct mr_iter *it, size_t want, struct mr_block *out, mr_status *st);
    void (*close)(struct mr_iter *it);
    /* NULL: the op has no state of its own, and the engine saves and restores the inputs. Otherwise
     * save writes everything, the inputs included (mr_iter_save_input), and restore, called on a
     * freshly opened iterator, reads it back. */
    mr_code (*save)(struct mr_iter *it, struct mr_state_w *w, mr_status *st);
    mr_code (*restore)(struct mr_iter *it, struct mr_state_r *r, mr_status *st);
    /* For ops whose iterators share state (mr_iter_shared): that state, without any iterator. The
     * engine calls them beside save and restore, and for nodes that have no iterator at the time
     * (the second input of concatenate in the next epoch). NULL: nothing is shared. */
    mr_code (*save_shared)(mr_dataset *node, struct mr_state_w *w, mr_status *st);
    mr_code (*restore_shared)(mr_dataset *node, struct mr_state_r *r, mr_status *st);
    /* Moves on by up to n elements without making them, where that is cheaper than to make them:
     * *skipped (0 before) of them, less than n where the next ones are to be pulled. Errors in what
     * is skipped need not be met. NULL: it cannot. */
    mr_code (*skip)(struct mr_iter *it, uint64_t n, uint64_t *skipped, mr_status *st);
    const void *kind; /* what tells ops apart whose slots are the same functions; NULL: nothing */
    /* What a memory limit must leave room for beside blocks in motion and held elements: how many
     * more blocks (*blocks, 0 before), and how often (*copies, 1 before) its inputs run in this
     * process; 0: elsewhere. NULL: none, once. */
    void (*needs)(const mr_dataset *self, const void *p, int64_t *copies, int64_t *blocks);
} mr_op;

/* The op called name (built in or registered), or NULL. */
MR_API const mr_op *mr_op_find(const char *name, size_t n);
/* The i-th op in order of names, NULL after the last: built-in ones, then registered ones. */
MR_API const mr_op *mr_op_at(size_t i);
/* Adds an op for the whole process; op must stay valid.
 * errors   MR_ALREADY_EXISTS, MR_INVALID_ARGUMENT: another ABI version, a bad name or table
 * thread   any */
MR_API mr_code mr_op_register(const mr_op *op, mr_status *st) MR_NODISCARD;

/* Makes a node: copies params (strings, lists, values; references functions), takes the inputs over
 * (also on failure), checks, infers. Always returns a dataset, which may carry an error. */
MR_API mr_dataset *mr_dataset_new(const mr_op *op, const void *params, mr_dataset *const *inputs,
                                  size_t n_inputs);
/* As mr_dataset_new from values: values[i] for the i-th parameter of the table (UNSET: default,
 * UNKNOWN: not known until the function is called; such a node is a template that can't run). */
MR_API mr_dataset *mr_dataset_from_values(const mr_op *op, const mr_value *values,
                                          mr_dataset *const *inputs, size_t n_inputs);
/* A dataset that carries st; takes over nothing. */
MR_API mr_dataset *mr_dataset_fail(const mr_status *st);

/* What a node is made of; all borrowed from ds. */
MR_API const mr_op *mr_dataset_op(const mr_dataset *ds);
MR_API const void *mr_dataset_params(const mr_dataset *ds);
MR_API size_t mr_dataset_n_inputs(const mr_dataset *ds);
MR_API mr_dataset *mr_dataset_input(const mr_dataset *ds, size_t i); /* borrowed */
/* Parameter `index` of the table as a value (UNSET where it has its default). Owned by the
 * caller. */
MR_API mr_code mr_dataset_param(const mr_dataset *ds, size_t index, mr_value *out,
                                mr_status *st) MR_NODISCARD;
/* The same by name; UNSET also if there is no such parameter. */
MR_API mr_code mr_dataset_param_named(const mr_dataset *ds, const char *name, mr_value *out,
                                      mr_status *st) MR_NODISCARD;
/* What the op holds at most, beside the blocks that move: *elements of input 0 as its parameters
 * say (MR_INFINITE: all that come; MR_UNKNOWN_COUNT: decided while it runs; 0: none), and their
 * *bytes, -1 where the types of the graph do not say. ds may carry an error: nothing then. */
MR_API void mr_dataset_held(const mr_dataset *ds, int64_t *elements, int64_t *bytes);
/* true if the parameter whose field lies at offset `at` is unknown (inside a function's
 * template). */
MR_API bool mr_param_unknown(const mr_dataset *ds, size_t at);
/* The same op and parameters over other inputs (taken over). */
MR_API mr_dataset *mr_dataset_with_inputs(const mr_dataset *ds, mr_dataset *const *inputs,
                                          size_t n);
/* The same op and inputs, parameter `name` being v. */
MR_API mr_dataset *mr_dataset_with_param(const mr_dataset *ds, const char *name, const mr_value *v);

#ifdef __cplusplus
}
#endif
#endif
