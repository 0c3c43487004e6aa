/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_GRAPH_OP_H
#define MR_PIPELINE_GRAPH_OP_H
/* An op is data: one descriptor, at the end of its file in pipeline/ops/. The text form, the
 * protobuf form, `millrace ops`, the reference page and all checks of arguments come from it; no
 * other code knows an op by name.
 *
 *     struct params { int64_t buffer_size; mr_shuffle_opts o; };   required ones, then the public
 *                                                                  options struct itself
 *     static const mr_param table[] = {
 *         MR_ARG(struct params, buffer_size, .min.i = 1, .max.i = INT64_MAX, .doc = "..."),
 *         MR_OPT(struct params, seed, .has_at = offsetof(struct params, o.has_seed), .doc = "..."),
 *         {0}};
 *
 * The descriptor's slots are called by the engine; engine/iter.h is what they may use.
 *
 * thread   descriptors are static and immutable
 * since    0.1 */
#include "dataset.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MR_ABI_VERSION 1

typedef enum mr_ptype {
    MR_PT_I64,    /* int64_t */
    MR_PT_F64,    /* double */
    MR_PT_BOOL,   /* bool */
    MR_PT_TRI,    /* mr_tri */
    MR_PT_STR,    /* char *, NULL if unset */
    MR_PT_FN,     /* mr_fn *, a reference */
    MR_PT_VALUE,  /* mr_value, by value: anything the grammar can say; the op checks it */
    MR_PT_INTS,   /* mr_ints: one integer or a list of them */
    MR_PT_FLOATS, /* mr_floats: a list of numbers */
    MR_PT_STRS    /* mr_strs: one string or a list of them */
} mr_ptype;

enum {
    MR_P_POSITIONAL = 1, /* required; given by position (or by name) */
    MR_P_AUTO = 2,       /* I64: `auto` is legal and becomes MR_AUTO */
    MR_P_VARIADIC = 4,   /* the last positional one, VALUE or STRS: takes all further positional
                            arguments (STRS: strings and lists of them, joined; VALUE: a TUPLE of
                            them, or a RECORD where they came with names of their own) */
    MR_P_OPTIONAL = 8, /* may also be given by position, after the required ones, but need not be */
    MR_P_DIMENSION = 16, /* its value decides shapes: unknown ones become -1 */
    MR_P_PATTERN = 32,   /* STRS: a literal in text is a glob pattern, a computed value is a path.
                            mr_strs.is_path says which */
    MR_P_NONE = 64       /* I64: `none` is legal and means unset */
};

#define MR_AUTO (INT64_MIN + 1) /* an I64 parameter given as `auto` */

union mr_pval {
    int64_t i;
    double f;
    bool b;
    const char *s;
};

typedef struct mr_param {
    const char *name, *doc; /* key in text, protobuf and reference; one sentence with its unit */
    mr_ptype type;
    uint16_t flags, since; /* MR_P_...; graph format version that brought it (0: the first) */
    uint32_t at, has_at; /* offset of the value; of its has_ bool where unset is not 0 (0: none) */
    union mr_pval def, min, max; /* I64, F64: range checked unless min == max. TRI: def.b */
    const char *const *names;    /* STR: the allowed words, NULL-ended; NULL: any */
} mr_param;

/* What rewrites may do with an op (docs/sharding.md). */
typedef enum mr_role {
    MR_ROLE_BARRIER,    /* ends the walk to the sources */
    MR_ROLE_FILES,      /* reads files: sharded by its list of files (split_files) */
    MR_ROLE_SOURCE,     /* makes elements from nothing: cannot be sharded by file */
    MR_ROLE_FILE_NAMES, /* a list of file names as elements (list_files): a shardable end */
    MR_ROLE_PASS,       /* passes through: walk on to input 0 */
    MR_ROLE_FUNCTION,   /* flat_map, interleave: may read files in its function */
    MR_ROLE_PARALLEL,   /* zip, concatenate: walk every input */
    MR_ROLE_BATCH,      /* PASS that makes batches */
    MR_ROLE_SHUFFLE,    /* PASS that a file shard is moved above */
    MR_ROLE_SHARD,      /* PASS: num_shards, index */
    MR_ROLE_PREFETCH,   /* PASS, stepped over at the sink */
    MR_ROLE_OPTIONS,    /* PASS, stepped over at the sink; holds options */
    MR_ROLE_ASSERT      /* dropped when its input is sharded */
} mr_role;

enum {
    MR_OP_KEEPS_COUNT = 1,  /* as many elements out as in */
    MR_OP_MAY_BLOCK = 2,    /* next may wait for an outside producer */
    MR_OP_NO_REPLAY = 4,    /* cannot produce the same again (a generator without a position,
                               deterministic=false): queues above save their rows */
    MR_OP_OPENS_INPUTS = 8, /* open opens the inputs itself (or later); otherwise the engine opens
                               all of them before open */
    MR_OP_RANDOM = 16,      /* draws from its seed parameter; unseeded, from a fresh one */
    MR_OP_INTERNAL = 32,    /* not for users: left out of the reference */
    MR_OP_SOURCE_CALL = 64  /* in text a function, not a method, although it has inputs (zip) */
};

struct mr_iter;
struct mr_state_w;
struct mr_state_r;
struct mr_block;

typedef struct mr_op {
    uint32_t abi;                     /* MR_ABI_VERSION */
    const char *name, *doc, *example; /* example: text form, printed in the docs, run by tests */
    const mr_param *params;           /* ends with name == NULL; NULL: none */
    uint32_t params_size, iter_size;  /* the engine allocates, zeroes and frees both */
    int8_t min_inputs, max_inputs;    /* -1: any number */
    mr_role role;
    uint32_t props;
    /* What the table can't say; NULL: nothing. Called with every parameter known. */
    mr_code (*check)(const void *p, mr_status *st);
    /* *out = the element's spec, owned. An unknown parameter (mr_param_unknown) has its default. */
    mr_code (*infer)(const mr_dataset *self, const void *p, mr_spec **out, mr_status *st);
    /* Number of elements, MR_INFINITE or MR_UNKNOWN_COUNT; in[i] that of input i. NULL: unknown. */
    int64_t (*cardinality)(const mr_dataset *self, const void *p, const int64_t *in);
    /* p is the params struct; it->state is iter_size zeroed bytes. close sees every partial state.
     */
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
    /* MR_ROLE_FILES: the same dataset as (list of file names as a dataset) + a function of one
     * name: calls shard(ctx, names) with the names' dataset (taken), which returns what to put in
     * its place (owned), and returns the whole, owned. */
    mr_dataset *(*split_files)(const mr_dataset *self,
                               mr_dataset *(*shard)(void *ctx, mr_dataset *names), void *ctx);
} mr_op;

#define MR_PT_OF(x)                                                                                \
    _Generic((x), int64_t: MR_PT_I64, double: MR_PT_F64, bool: MR_PT_BOOL, mr_tri: MR_PT_TRI,      \
        char *: MR_PT_STR, mr_fn *: MR_PT_FN, mr_value: MR_PT_VALUE, mr_ints: MR_PT_INTS,          \
        mr_floats: MR_PT_FLOATS, mr_strs: MR_PT_STRS)
/* A required parameter: field f of struct T. */
#define MR_ARG(T, f, ...)                                                                          \
    {                                                                                              \
        .name = #f, .at = offsetof(T, f), .type = MR_PT_OF(((T *)0)->f), .flags = MR_P_POSITIONAL, \
        __VA_ARGS__                                                                                \
    }
/* An option: field o.f of struct T. */
#define MR_OPT(T, f, ...)                                                                          \
    {                                                                                              \
        .name = #f, .at = offsetof(T, o.f), .type = MR_PT_OF(((T *)0)->o.f), __VA_ARGS__           \
    }

/* The op called name (built in or registered), or NULL. */
MR_API const mr_op *mr_op_find(const char *name, size_t n);
/* The i-th op in order of names, NULL behind the last: built-in ones, then registered ones. */
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
/* Parameter `index` of the table as a value (UNSET where it has its default). Owned by the caller.
 */
MR_API mr_code mr_dataset_param(const mr_dataset *ds, size_t index, mr_value *out,
                                mr_status *st) MR_NODISCARD;
/* The same by name; UNSET also if there is no such parameter. */
MR_API mr_code mr_dataset_param_named(const mr_dataset *ds, const char *name, mr_value *out,
                                      mr_status *st) MR_NODISCARD;
/* true if the parameter whose field lies at offset `at` is unknown (inside a function's template).
 */
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
