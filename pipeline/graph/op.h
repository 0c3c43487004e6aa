/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_GRAPH_OP_H
#define MR_PIPELINE_GRAPH_OP_H
/* Descriptors of ops. An op is one descriptor, at the end of its file in pipeline/ops/. The text
 * form, the protobuf form, `millrace ops`, the reference page and all checks of arguments are
 * derived from it; no other code refers to an op by name.
 *
 * For example, the op first(count) emits the first elements of its input. Its parameters:
 *
 *     struct params {
 *         int64_t count;
 *     };
 *     static const mr_param table[] = {
 *         MR_ARG(struct params, count, .max.i = INT64_MAX, .doc = "Elements to emit."), {0}};
 *
 * Its open, next, save and restore are shown at the top of engine/op_iterator.h, which declares the
 * functions that they may call. The descriptor:
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
 * After mr_op_register(&first, &st), texts can use it: range(5).first(3). A constructor in C is a
 * call of mr_dataset_new. An op with options has their public struct as field `o` of its params,
 * and an MR_OPT for each option in its table.
 *
 * thread   descriptors are static and immutable
 * since    0.1 */
#include "dataset.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How sharding by file treats an op as it walks a graph from the sink to the sources
 * (docs/sharding.md). */
typedef enum mr_role {
    MR_ROLE_BARRIER,  /* stops: files below the op cannot be divided */
    MR_ROLE_SOURCE,   /* stops: the op reads no files */
    MR_ROLE_FILES,    /* divides the files listed in the op's parameter MR_P_PATTERN */
    MR_ROLE_PASS,     /* continues at input 0; if a function of the op reads files, divides the
                         elements of input 0 instead */
    MR_ROLE_FUNCTION, /* like PASS; the op makes its elements from the datasets that its function
                         returns, so datasets as elements can be divided too */
    MR_ROLE_PARALLEL  /* continues at every input */
} mr_role;

/* Traits of an op, which the engine and the rewrites act on; an op may have any of them. */
enum {
    /* ---- its elements ---- */
    MR_OP_KEEPS_COUNT = 1 << 0, /* emits as many elements as input 0 */
    MR_OP_REORDERS = 1 << 1,    /* emits its input's elements (a source: its own) in another order:
                                   sharding by file inserts the shard below it */
    MR_OP_UNBATCHES = 1 << 2,   /* emits the rows of its input's elements: batching below it is
                                   undone above it */
    MR_OP_IS_RANGE = 1 << 3,    /* emits the numbers that its parameters start, stop and step
                                   describe, as Python's range */
    MR_OP_FILE_NAMES = 1 << 4,  /* a source whose elements are file names */
    MR_OP_LATE_COUNT = 1 << 5,  /* `cardinality` reads files: it is called on request, not when the
                                   node is made */

    /* ---- how it runs ---- */
    MR_OP_MAY_BLOCK = 1 << 6, /* next may wait for an outside producer */
    MR_OP_NO_REPLAY = 1 << 7, /* cannot emit the same elements again (a generator without a
                                     position, deterministic=false): queues above save their rows */
    MR_OP_RANDOM = 1 << 8,    /* draws from its parameter `seed`; unseeded, from a fresh seed */
    MR_OP_REMEMBERS = 1 << 9, /* pulling has effects on later iterators (cache): an op above that
                                     may end early must not pull more than its element-at-a-time
                                     definition does */
    MR_OP_OPENS_INPUTS = 1 << 10, /* open opens the inputs itself (or later); otherwise the engine
                                     opens all of them before open */
    MR_OP_OPENS_LATER = 1 << 11,  /* opens inputs while it runs: the same one again, or the next */
    MR_OP_SEEKS_INPUT = 1 << 12,  /* reads its input (a file reader) by random access; rewrites must
                                     not replace that reader */
    MR_OP_READS_AHEAD = 1 << 13,  /* by its parameter `buffer_size`: a consumer with slots adds the
                                     depth to its own, and drops the op if MR_OP_SHARD_BELOW */

    /* ---- sharding ---- */
    MR_OP_SHARD_BELOW = 1 << 14,   /* at the end of a graph, a shard of the data is inserted below
                                     it */
    MR_OP_SHARDS = 1 << 15,        /* emits every num_shards-th element, from `index` on;
                                     num_shards=-1 is a hint that the HINT policy replaces */
    MR_OP_WHOLE_INPUT = 1 << 16,   /* states a fact about the whole input: dropped where each worker
                                     has a part of it */
    MR_OP_KEEPS_SHARDS = 1 << 17,  /* a shard of its inputs yields the same shard of its output: it
                                     treats each element separately, or only groups and reorders
                                     them. Without it, each stream of a service runs the op and
                                     everything below it on all elements
                                     (shard/streams/stream_cut.h) */
    MR_OP_HOLDS_OPTIONS = 1 << 18, /* its parameters are options of the whole graph */

    /* ---- text and reference ---- */
    MR_OP_SOURCE_CALL =
        1 << 19, /* a function in text, not a method, although it has inputs (zip) */
    MR_OP_LISTS_INPUTS = 1 << 20, /* with SOURCE_CALL: its inputs are a list in text, except for the
                                     last min_inputs - 1, which follow the list */
    MR_OP_INTERNAL = 1 << 21,     /* not for users: omitted from the reference */

    /* ---- elements by number ---- */
    MR_OP_MAY_FAIL = 1 << 27,      /* computes elements, which may fail where its input's do not: if
                                      no files are read, skipped elements are produced, so that
                                      their errors come up */
    MR_OP_FILE_ELEMENTS = 1 << 28, /* a source that makes each element of a file: sharding its
                                      elements is sharding its files, and a shard skips those of the
                                      others */

    /* ---- what it reaches ---- */
    MR_OP_OUTSIDE = 1 << 22, /* reads what is outside of the graph, besides the files of
                               MR_ROLE_FILES and MR_OP_FILE_NAMES: a dataset that is stored as a
                               value runs it only if the graph that holds the value runs it too.
                               Ops that a program registers count as such */

    /* ---- inputs with names ---- */
    MR_OP_NAMES_INPUTS =
        1 << 23, /* with SOURCE_CALL: its inputs are a record in text. Their names are those of its
                   parameter `weights`, a VALUE: a record with a number for each, in their order. A
                   position has a part for each input, by its name, so that a restore by name may
                   find other inputs and weights. With the last word of a parameter `stop` the op is
                   MR_OP_OPENS_LATER too */
    MR_OP_KEEPS_GRAPH = 1 << 24, /* its state contains the graph of its inputs, which a restore by
                                   name must therefore find unchanged */

    /* ---- in an elastic job (shard/distribute/elastic_*) ---- */
    MR_OP_BATCHES =
        1 << 25, /* groups elements of input 0, `batch_size` at a time, in their order */
    MR_OP_COUNTS_STEPS = 1 << 26, /* chooses, repeats or numbers elements by their place alone */
    MR_OP_MIXES = 1 << 29, /* emits the elements of its inputs, in an order drawn at random: each
                              stream draws the order of its parts of the inputs */
    MR_OP_PAIRS = 1 << 30  /* element i consists of element i of each input */
};

struct mr_iter;
struct mr_state_w;
struct mr_state_r;
struct mr_block;

typedef struct mr_op {
    uint32_t abi; /* MR_ABI_VERSION */

    /* ---- text and reference ---- */
    const char *name, *doc,
        *example; /* example: text form, printed in the reference, run by tests */
    /* A phrase each. NULL: the order of the input; a block of elements; no state besides that of
     * the inputs; as many elements (n) as input 0, or an unknown number. */
    const char *order_doc, *memory_doc, *state_doc, *count_doc;

    /* ---- parameters and inputs ---- */
    const mr_param *params;          /* ends with name == NULL; NULL: none */
    uint32_t params_size, iter_size; /* of the params struct and of it->state; the engine allocates,
                                        zeroes and frees both */
    int8_t min_inputs, max_inputs;   /* -1: any number */
    mr_role role;
    uint32_t props;   /* MR_OP_..., combined by | */
    const void *kind; /* identifies the op where several descriptors share the same callbacks; NULL:
                         they do not */

    /* ---- the graph: p is the params struct ---- */
    /* Checks what the table of parameters cannot express; all parameters are known. NULL:
     * nothing. */
    mr_code (*check)(const void *p, mr_status *st);
    /* *out = the element's spec, owned. An unknown parameter (mr_param_unknown) has its default.
     * NULL: that of input 0. */
    mr_code (*infer)(const mr_dataset *self, const void *p, mr_spec **out, mr_status *st);
    /* Returns the number of elements, MR_INFINITE or MR_UNKNOWN_COUNT; in[i] is that of input i.
     * NULL: that of input 0 with MR_OP_KEEPS_COUNT, else unknown. */
    int64_t (*cardinality)(const mr_dataset *self, const void *p, const int64_t *in);
    /* What a memory limit must leave room for, besides blocks in motion and buffered elements:
     * *blocks = number of additional blocks (initially 0), *copies = how many times the inputs
     * run in this process (initially 1; 0: they run elsewhere). NULL: none, once. */
    void (*needs)(const mr_dataset *self, const void *p, int64_t *copies, int64_t *blocks);
    /* Writes a phrase about the node that only numbers of elements show, for `millrace explain`;
     * nothing if there is nothing to say. NULL: nothing. */
    void (*note)(const mr_dataset *self, const void *p, char *text, size_t size);

    /* ---- running: op_iterator.h ---- */
    mr_code (*open)(struct mr_iter *it, mr_status *st);
    mr_code (*next)(struct mr_iter *it, size_t want, struct mr_block *out, mr_status *st);
    /* Moves forward by up to n elements without making them, where that is cheaper: *skipped
     * (initially 0) = how many; if less than n, the caller pulls the rest. Errors in skipped
     * elements may go unreported. NULL: not supported. */
    mr_code (*skip)(struct mr_iter *it, uint64_t n, uint64_t *skipped, mr_status *st);
    void (*close)(struct mr_iter *it); /* also after a failed open, in any partial state */

    /* ---- elements by number: an op with `at` is indexed if its inputs are; op_iterator.h ---- */
    /* MR_OK: as far as the graph shows, the node is indexed; the inputs are checked separately.
     * Else says why not, as in "compressed files are read from the beginning". NULL: it is. */
    mr_code (*indexed)(const mr_dataset *self, const void *p, mr_status *st);
    /* *n = the number of elements, for sources that look at their files. NULL: `cardinality` of the
     * inputs' numbers. */
    mr_code (*count)(struct mr_iter *it, uint64_t *n, mr_status *st);
    /* out = elements index[0], index[1], ...: 1..n rows, or the error of index[0]. All
     * are less than the number of elements, in any order. It must not depend on `next`, which is
     * never called for the same iterator. NULL: not indexed. */
    mr_code (*at)(struct mr_iter *it, const uint64_t *index, size_t n, struct mr_block *out,
                  mr_status *st);

    /* ---- positions ---- */
    /* NULL: the op has no state, and the engine saves and restores the inputs. Otherwise save
     * writes everything, the inputs included (mr_iter_save_input), and restore, called on a
     * freshly opened iterator, reads it back. */
    mr_code (*save)(struct mr_iter *it, struct mr_state_w *w, mr_status *st);
    mr_code (*restore)(struct mr_iter *it, struct mr_state_r *r, mr_status *st);
    /* For ops whose iterators share state (mr_iter_shared): that state, without an iterator. The
     * engine calls them together with save and restore, and for nodes that have no iterator at the
     * time (the second input of concatenate, in the next epoch). NULL: nothing is shared. */
    mr_code (*save_shared)(mr_dataset *node, struct mr_state_w *w, mr_status *st);
    mr_code (*restore_shared)(mr_dataset *node, struct mr_state_r *r, mr_status *st);
} mr_op;

/* The built-in or registered op with this name of n bytes, or NULL. */
MR_API const mr_op *mr_op_find(const char *name, size_t n);
/* The i-th op, NULL after the last: the built-in ones, then the registered ones, each by name. */
MR_API const mr_op *mr_op_at(size_t i);
/* Adds an op for the whole process; op must stay valid.
 * errors   MR_ALREADY_EXISTS; MR_INVALID_ARGUMENT: another ABI version, a bad name or table,
 *          a role or a bit of props that has no name
 * thread   any */
MR_API mr_code mr_op_register(const mr_op *op, mr_status *st) MR_NODISCARD;

/* Makes a node: copies params (strings, lists and values; functions are referenced), takes the
 * inputs over (also on failure), checks the parameters and infers the spec. Always returns a
 * dataset, which may carry an error. */
MR_API mr_dataset *mr_dataset_new(const mr_op *op, const void *params, mr_dataset *const *inputs,
                                  size_t n_inputs);
/* Like mr_dataset_new, with values[i] for parameter i of the table. UNSET is its default. UNKNOWN
 * is a value that is not known before the function around it is called; such a node is a template
 * that cannot run. */
MR_API mr_dataset *mr_dataset_from_values(const mr_op *op, const mr_value *values,
                                          mr_dataset *const *inputs, size_t n_inputs);
/* A dataset that carries the error st. */
MR_API mr_dataset *mr_dataset_fail(const mr_status *st);

/* The parts of a node, borrowed from ds. */
MR_API const mr_op *mr_dataset_op(const mr_dataset *ds);
MR_API const void *mr_dataset_params(const mr_dataset *ds);
MR_API size_t mr_dataset_n_inputs(const mr_dataset *ds);
MR_API mr_dataset *mr_dataset_input(const mr_dataset *ds, size_t i); /* borrowed */
/* Parameter `index` of the table as a value (UNSET if it has its default). Owned by the caller. */
MR_API mr_code mr_dataset_param(const mr_dataset *ds, size_t index, mr_value *out,
                                mr_status *st) MR_NODISCARD;
/* The same by name; UNSET also if the op has no such parameter. */
MR_API mr_code mr_dataset_param_named(const mr_dataset *ds, const char *name, mr_value *out,
                                      mr_status *st) MR_NODISCARD;
/* The most that the op buffers, besides blocks in motion: *elements of input 0, as its parameters
 * determine (MR_INFINITE: all; MR_UNKNOWN_COUNT: decided at run time; 0: none), and their size in
 * *bytes, -1 if the types do not determine it. Both are 0 if ds carries an error. */
MR_API void mr_dataset_held(const mr_dataset *ds, int64_t *elements, int64_t *bytes);
/* What the op notes about ds (mr_op.note), as text of less than `size` bytes; "": nothing, or ds
 * carries an error. since 0.2 */
MR_API void mr_dataset_note(const mr_dataset *ds, char *text, size_t size);
/* True if the parameter with its field at offset `at` is unknown (in the template of a
 * function). */
MR_API bool mr_param_unknown(const mr_dataset *ds, size_t at);
/* Copies ds with other inputs (taken over). */
MR_API mr_dataset *mr_dataset_with_inputs(const mr_dataset *ds, mr_dataset *const *inputs,
                                          size_t n);
/* Copies ds with v as parameter `name`. */
MR_API mr_dataset *mr_dataset_with_param(const mr_dataset *ds, const char *name, const mr_value *v);

#ifdef __cplusplus
}
#endif
#endif
