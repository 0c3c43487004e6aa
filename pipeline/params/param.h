/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_PARAMS_PARAM_H
#define MR_PIPELINE_PARAMS_PARAM_H
/* Parameter tables: each describes the fields of a C struct. Ops, layers, losses, optimizers and
 * metrics all have one. The text form, the checks of arguments with their messages, and the
 * reference pages are derived from it.
 *
 *     struct params { int64_t units; bool use_bias; };
 *     static const mr_param table[] = {
 *         MR_ARG(struct params, units, .min.i = 1, .max.i = 1 << 24, .doc = "Number of outputs."),
 *         MR_PARAM(struct params, use_bias, .def.b = true, .doc = "Adds a learned value to each."),
 *         {0}};
 *
 * In text these are the arguments of a call: dense(10), dense(units=10, use_bias=false).
 *
 * In C++ the macros are those of ../cpp/descriptors.hpp: MR_ARG(params, units).range(1, 1 << 24)
 *
 * thread   tables are static and immutable
 * since    0.1 */
#include <stddef.h>
#include "expr.h"
#include "value.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The ABI version in every descriptor with a table; it must match exactly when registered. */
#define MR_ABI_VERSION 6

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
    mr_bytes *v; /* each followed by a NUL byte that its size does not count */
    size_t n;
    bool *is_path; /* n entries; NULL: all are literals (patterns, if the op accepts patterns) */
} mr_strs;

typedef enum mr_ptype {
    MR_PT_I64,    /* int64_t */
    MR_PT_F64,    /* double */
    MR_PT_BOOL,   /* bool */
    MR_PT_TRI,    /* mr_tri */
    MR_PT_STR,    /* char *, NULL if unset */
    MR_PT_FN,     /* mr_fn *, a reference; ops only */
    MR_PT_VALUE,  /* mr_value, by value: anything the grammar can express; the op checks it */
    MR_PT_INTS,   /* mr_ints: one integer or a list of them */
    MR_PT_FLOATS, /* mr_floats: a list of numbers */
    MR_PT_STRS,   /* mr_strs: one string or a list of them */
    MR_PT_OWN     /* the type that `kind` reads; not for ops, since it cannot be serialized */
} mr_ptype;

enum {
    MR_P_POSITIONAL = 1, /* required; given by position or by name */
    MR_P_AUTO = 2,       /* I64: accepts `auto`, as MR_AUTO; STR: accepts it, as the word "auto" */
    MR_P_VARIADIC = 4,   /* the last positional parameter (VALUE, INTS or STRS): takes all further
                            positional arguments. INTS, STRS: values and lists of them, joined;
                            VALUE: a TUPLE of them, or a RECORD if they have names */
    MR_P_OPTIONAL = 8,   /* may be omitted; given by name, or by position after the required ones */
    MR_P_DIMENSION = 16, /* sets a dimension of the elements: -1 while the parameter is unknown */
    MR_P_PATTERN = 32,   /* STRS: a literal in text is a glob pattern, a computed value is a path.
                            mr_strs.is_path tells them apart */
    MR_P_NONE = 64,      /* accepts `none`, as unset */
    MR_P_SHUFFLES = 128, /* BOOL: the op is MR_OP_RANDOM and MR_OP_REORDERS only if it is true */
    MR_P_KEEPS_FILE = 512,   /* STR: if set, the op stores elements in that file; its output
                               must not be divided by dividing its input */
    MR_P_WRITES = 1 << 15,   /* STR: if set, the op writes to the file or folder of that name */
    MR_P_OF_GRAPH = 1 << 13, /* STR: the fingerprint of the graph whose elements are in the file
                               MR_P_KEEPS_FILE. Rewrites that change the graph set it */
    MR_P_RANGE = 1024,      /* INTS: [i, n], the op reads part i of n of all records of its files */
    MR_P_OF_SPEC = 4096,    /* when a rewrite clones this op to read a subset of the files, it sets
                               this parameter. STRS: to the component names; STR, an
                               MR_P_EXPRESSION: to their names and types (spec_text.h), and a
                               STRS parameter of this kind is omitted */
    MR_P_EXPRESSION = 2048, /* STR: any expression of the grammar, kept as its text */
    MR_P_HOLDS = 1 << 14,   /* I64: number of elements of input 0 that are buffered at once */
    MR_P_READS = 256 /* I64: number of files that are read at once, taking one element of each in
                        turn; unset: one file after another */
};

#define MR_AUTO (INT64_MIN + 1) /* value of an I64 parameter given as `auto` */

union mr_pval {
    int64_t i;
    double f;
    bool b;
    const char *s;
#ifdef __cplusplus
    /* C++17 initializes only the first member by itself. */
    constexpr mr_pval() : i(0)
    {
    }
    constexpr explicit mr_pval(int64_t x) : i(x)
    {
    }
    constexpr explicit mr_pval(double x) : f(x)
    {
    }
    constexpr explicit mr_pval(bool x) : b(x)
    {
    }
    constexpr explicit mr_pval(const char *x) : s(x)
    {
    }
#endif
};

typedef struct mr_param mr_param;

/* A custom parameter type that the owner of the table defines: an activation given by name, an
 * initializer given by name or as a call with arguments. */
typedef struct mr_param_kind {
    size_t size; /* of the field */
    /* Fills the zeroed field from the expression of the argument; owns nothing after a failure.
     * errors   MR_INVALID_ARGUMENT, through mr_expr_fail_at */
    mr_code (*parse)(const mr_param *p, const mr_expr *e, void *field, mr_status *st);
    void (*clear)(void *field); /* frees what the field owns; NULL: it owns nothing */
    /* The field as text, the same for equal values; owned (mr_malloc), NULL: no memory. A NULL
     * slot: values cannot be compared. */
    char *(*print)(const void *field);
} mr_param_kind;

struct mr_param {
    const char *name, *doc; /* key in text, protobuf and reference; one sentence with its unit */
    mr_ptype type;
    uint16_t flags;      /* MR_P_... */
    uint32_t at, has_at; /* offsets of the field, and of its has_ bool if 0 is a legal value other
                            than the default; has_at 0: no such bool */
    union mr_pval def, min, max; /* I64, F64 and lists of them: range, checked unless min == max.
                                    TRI: def.b. OWN: def.s is parsed for the default; if NULL, the
                                    field stays zeroed */
    const char *const *names;    /* STR: the allowed words, NULL-terminated; NULL: any */
    const mr_param_kind *kind;   /* OWN */
};

/* In C++ these macros come from <millrace/millrace.hpp> (pipeline/cpp/descriptors.hpp). */
#ifndef __cplusplus
#define MR_PT_OF(x)                                                                                \
    _Generic((x), int64_t: MR_PT_I64, double: MR_PT_F64, bool: MR_PT_BOOL, mr_tri: MR_PT_TRI,      \
        char *: MR_PT_STR, mr_fn *: MR_PT_FN, mr_value: MR_PT_VALUE, mr_ints: MR_PT_INTS,          \
        mr_floats: MR_PT_FLOATS, mr_strs: MR_PT_STRS)
/* Field f of struct T, with flags `with`. */
#define MR_PARAM_WITH(T, f, with, ...)                                                             \
    {                                                                                              \
        .name = #f, .at = offsetof(T, f), .type = MR_PT_OF(((T *)0)->f), .flags = (with),          \
        __VA_ARGS__                                                                                \
    }
/* A required parameter; an optional one, given by position or by name. */
#define MR_ARG(T, f, ...)   MR_PARAM_WITH(T, f, MR_P_POSITIONAL, __VA_ARGS__)
#define MR_PARAM(T, f, ...) MR_PARAM_WITH(T, f, MR_P_OPTIONAL, __VA_ARGS__)
/* An option, given by name: field o.f of struct T. */
#define MR_OPT(T, f, ...)                                                                          \
    {                                                                                              \
        .name = #f, .at = offsetof(T, o.f), .type = MR_PT_OF(((T *)0)->o.f), __VA_ARGS__           \
    }
/* An optional parameter of a custom type: k is an mr_param_kind. */
#define MR_PARAM_OWN(T, f, k, ...)                                                                 \
    {                                                                                              \
        .name = #f, .at = offsetof(T, f), .type = MR_PT_OWN, .kind = &(k), .flags = MR_P_OPTIONAL, \
        __VA_ARGS__                                                                                \
    }
#endif

/* A parameter table with the struct it describes. */
typedef struct mr_param_table {
    const char *name;       /* of the op or layer, for messages */
    const mr_param *params; /* ends with name == NULL; NULL: no parameters */
    size_t size;            /* of the struct; at least 1 */
} mr_param_table;

/* Makes *out a struct with the defaults and the arguments of e: a CALL, a METHOD (its receiver is
 * not an argument), or a NAME or STRING (without arguments). Arguments must be literals. Owned:
 * mr_params_free.
 * errors   MR_INVALID_ARGUMENT, with line and caret: an unknown, missing or repeated argument, a
 *          wrong type, a value out of range */
MR_API mr_code mr_params_parse(const mr_param_table *t, const mr_expr *e, void **out,
                               mr_status *st) MR_NODISCARD;
MR_API void mr_params_free(const mr_param_table *t, void *params); /* params NULL: no-op */
/* *out (owned) = the value of one parameter as text: "none" if it is unset. NULL: it has no text
 * (FN, VALUE, and OWN if its kind does not print).
 * errors   MR_RESOURCE_EXHAUSTED
 * since    0.2 */
MR_API mr_code mr_param_text(const mr_param *p, const void *params, char **out,
                             mr_status *st) MR_NODISCARD;
/* Checks a table: names are [a-z][a-z0-9_]*, each parameter has a doc, fields are within the
 * struct, defaults within their ranges.
 * errors   MR_INVALID_ARGUMENT */
MR_API mr_code mr_params_check(const mr_param_table *t, mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
