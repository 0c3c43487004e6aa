/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_PARAMS_PARAM_H
#define MR_PIPELINE_PARAMS_PARAM_H
/* Parameters: the fields of a C struct as a table describes them. Ops, layers, losses, optimizers
 * and metrics all have one; the text form, the checks of arguments, their messages and the
 * reference come from it.
 *
 *     struct params { int64_t units; bool use_bias; };
 *     static const mr_param table[] = {
 *         MR_ARG(struct params, units, .min.i = 1, .max.i = 1 << 24, .doc = "Values it gives."),
 *         MR_PARAM(struct params, use_bias, .def.b = true, .doc = "Adds a learned value to each."),
 *         {0}};
 *
 * In text these are the arguments of a call: dense(10), dense(units=10, use_bias=false).
 *
 * thread   tables are static and immutable
 * since    0.1 */
#include <stddef.h>
#include "expr.h"
#include "value.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of every descriptor with a table, as registered; must match exactly. */
#define MR_ABI_VERSION 5

typedef enum mr_tri { MR_DEFAULT, MR_YES, MR_NO } mr_tri;

typedef struct mr_ints {
    int64_t *v;
    size_t n;
} mr_ints;
typedef struct mr_floats {
    double *v;
    size_t n;
} mr_floats;
typedef struct mr_strs {
    mr_bytes *v; /* not NUL-ended by contract, but always followed by a NUL byte */
    size_t n;
    bool *is_path; /* n of them, or NULL: all are literals (patterns where the op takes patterns) */
} mr_strs;

/* Of sources whose files are tables (ops/sources.h). */
typedef struct mr_table_opts {
    mr_strs columns; /* those that are read; none: all. Borrowed during the call, as schema */
    char *schema;    /* in the text form, {"x": float32, "tags": bytes[]}: the columns and their
                        types; NULL: those of the first file */
    bool paths;      /* names are paths as they stand, none is a pattern */
} mr_table_opts;

typedef enum mr_ptype {
    MR_PT_I64,    /* int64_t */
    MR_PT_F64,    /* double */
    MR_PT_BOOL,   /* bool */
    MR_PT_TRI,    /* mr_tri */
    MR_PT_STR,    /* char *, NULL if unset */
    MR_PT_FN,     /* mr_fn *, a reference; ops only */
    MR_PT_VALUE,  /* mr_value, by value: anything the grammar can say; its owner checks it */
    MR_PT_INTS,   /* mr_ints: one integer or a list of them */
    MR_PT_FLOATS, /* mr_floats: a list of numbers */
    MR_PT_STRS,   /* mr_strs: one string or a list of them */
    MR_PT_OWN     /* whatever `kind` reads; not for ops, whose parameters must travel */
} mr_ptype;

enum {
    MR_P_POSITIONAL = 1, /* required; given by position (or by name) */
    MR_P_AUTO = 2,       /* I64: `auto` is legal and becomes MR_AUTO; STR: it is the word "auto" */
    MR_P_VARIADIC = 4,   /* the last positional one, VALUE, INTS or STRS: takes all further
                            positional arguments (INTS, STRS: values and lists of them, joined;
                            VALUE: a TUPLE of them, or a RECORD where they came with names) */
    MR_P_OPTIONAL = 8, /* may also be given by position, after the required ones, but need not be */
    MR_P_DIMENSION = 16, /* its value decides shapes: unknown ones become -1 */
    MR_P_PATTERN = 32,   /* STRS: a literal in text is a glob pattern, a computed value is a path.
                            mr_strs.is_path says which */
    MR_P_NONE = 64,      /* `none` is legal and means unset */
    MR_P_SHUFFLES = 128, /* BOOL: the op is MR_OP_RANDOM and MR_OP_REORDERS only where it is true */
    MR_P_KEEPS_FILE = 512, /* STR: where given, the op keeps elements in that file: what it emits is
                              not to be divided by dividing its input */
    MR_P_RANGE = 1024,     /* INTS: [i, n], the op reads part i of n of all its files' records */
    MR_P_OF_SPEC = 4096,   /* STRS: an op that is made from this one to read a part of the files is
                              given the names of the elements' components here; STR, an
                              MR_P_EXPRESSION: their types too (spec_text.h), and an STRS beside
                              it is left out */
    MR_P_EXPRESSION = 2048, /* STR: given as an expression of any meaning, and kept as its text */
    MR_P_HOLDS = 1 << 14,   /* I64: so many elements of input 0 are held at once */
    MR_P_READS = 256 /* I64: how many of the files are read at once, an element of each in turn;
                            unset: file after file */
};

#define MR_AUTO (INT64_MIN + 1) /* an I64 parameter given as `auto` */

union mr_pval {
    int64_t i;
    double f;
    bool b;
    const char *s;
};

typedef struct mr_param mr_param;

/* A type of parameter that the owner of the table supplies where those above will not do: an
 * activation by its name, an initializer by a name or a call with arguments of its own. */
typedef struct mr_param_kind {
    size_t size; /* of the field */
    /* Fills the field (zeroed memory) from the argument as it was written; nothing is owned after a
     * failure. errors MR_INVALID_ARGUMENT, through mr_expr_fail_at */
    mr_code (*parse)(const mr_param *p, const mr_expr *e, void *field, mr_status *st);
    void (*clear)(void *field); /* frees what it owns; NULL: nothing */
} mr_param_kind;

struct mr_param {
    const char *name, *doc; /* key in text, protobuf and reference; one sentence with its unit */
    mr_ptype type;
    uint16_t flags;      /* MR_P_... */
    uint32_t at, has_at; /* offset of the value; of its has_ bool where unset is not 0 (0: none) */
    union mr_pval def, min, max; /* I64, F64 and lists of them: range checked unless min == max.
                                    TRI: def.b. OWN: def.s is what is read for the default; NULL:
                                    the field stays zeroed */
    const char *const *names;    /* STR: the allowed words, NULL-ended; NULL: any */
    const mr_param_kind *kind;   /* OWN */
};

#define MR_PT_OF(x)                                                                                \
    _Generic((x), int64_t: MR_PT_I64, double: MR_PT_F64, bool: MR_PT_BOOL, mr_tri: MR_PT_TRI,      \
        char *: MR_PT_STR, mr_fn *: MR_PT_FN, mr_value: MR_PT_VALUE, mr_ints: MR_PT_INTS,          \
        mr_floats: MR_PT_FLOATS, mr_strs: MR_PT_STRS)
/* Field f of struct T, with flags. */
#define MR_PARAM_WITH(T, f, with, ...)                                                             \
    {                                                                                              \
        .name = #f, .at = offsetof(T, f), .type = MR_PT_OF(((T *)0)->f), .flags = (with),          \
        __VA_ARGS__                                                                                \
    }
/* A required parameter; one that may be left out, by position or by name. */
#define MR_ARG(T, f, ...)   MR_PARAM_WITH(T, f, MR_P_POSITIONAL, __VA_ARGS__)
#define MR_PARAM(T, f, ...) MR_PARAM_WITH(T, f, MR_P_OPTIONAL, __VA_ARGS__)
/* An option: field o.f of struct T. */
#define MR_OPT(T, f, ...)                                                                          \
    {                                                                                              \
        .name = #f, .at = offsetof(T, o.f), .type = MR_PT_OF(((T *)0)->o.f), __VA_ARGS__           \
    }
/* One that may be left out, with a type of its owner's: k is an mr_param_kind. */
#define MR_PARAM_OWN(T, f, k, ...)                                                                 \
    {                                                                                              \
        .name = #f, .at = offsetof(T, f), .type = MR_PT_OWN, .kind = &(k), .flags = MR_P_OPTIONAL, \
        __VA_ARGS__                                                                                \
    }

/* A table, the struct that it describes, and whose it is. */
typedef struct mr_param_table {
    const char *name;       /* of the op or layer, for messages */
    const mr_param *params; /* ends with name == NULL; NULL: none */
    size_t size;            /* of the struct; at least 1 */
} mr_param_table;

/* *out = a struct with defaults, then the arguments of e: a CALL, a METHOD (whose receiver is no
 * argument), or a NAME or STRING (neither has any). Arguments are literals. Owned: mr_params_free.
 * errors   MR_INVALID_ARGUMENT, with line and caret: an unknown, missing or repeated argument, a
 *          wrong type, a value out of range */
MR_API mr_code mr_params_parse(const mr_param_table *t, const mr_expr *e, void **out,
                               mr_status *st) MR_NODISCARD;
MR_API void mr_params_free(const mr_param_table *t, void *params); /* params NULL: nothing */
/* What a name and a table must be: names [a-z][a-z0-9_]*, a doc each, fields within the struct,
 * defaults within their ranges. errors MR_INVALID_ARGUMENT */
MR_API mr_code mr_params_check(const mr_param_table *t, mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
