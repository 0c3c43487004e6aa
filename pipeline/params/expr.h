/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_PARAMS_EXPR_H
#define MR_PIPELINE_PARAMS_EXPR_H
/* The syntax tree of the text form (docs/grammar.md) of pipelines, models and function bodies.
 * text_parse.c builds it, text_print.c prints it. Names are resolved elsewhere: those of ops and
 * functions in functions/compiler/, those of models in the trainer.
 *
 * Nodes are immutable and reference-counted; a reference to any node keeps the whole tree. Trees
 * are at most MR_EXPR_MAX_DEPTH levels deep, so that recursion over them is bounded; each method of
 * a chain is a level.
 *
 * thread   any
 * since    0.1 */
#include "../memory/array.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MR_EXPR_MAX_DEPTH 1000
#define MR_EXPR_MAX_TEXT  ((size_t)16 << 20)

typedef enum mr_expr_kind {
    MR_EX_INT,    /* i */
    MR_EX_FLOAT,  /* f */
    MR_EX_STRING, /* text, text_size */
    MR_EX_BOOL,   /* i */
    MR_EX_NONE,
    MR_EX_AUTO,
    MR_EX_NAME,   /* text */
    MR_EX_LIST,   /* children */
    MR_EX_TUPLE,  /* children: none, or at least 2; (e,) and (e) are e */
    MR_EX_RECORD, /* children with keys */
    MR_EX_CALL,   /* text: function; children: arguments, keys[i] NULL for positional ones */
    MR_EX_METHOD, /* text: method; child 0: receiver (keys[0] NULL); then arguments as in CALL */
    MR_EX_LAMBDA, /* params; child 0: body */
    MR_EX_INDEX,  /* child 0 [ child 1 ]; x[3, 4] has a TUPLE as child 1; dtype[] has one child */
    MR_EX_SLICE,  /* i:j:k within an index; children: start, stop, step; NONE if omitted */
    MR_EX_UNARY,  /* op: '-', or 'n' for not */
    MR_EX_BINARY, /* op: + - * / % = < >, 'f' //, 'p' **, '!' !=, 'l' <=, 'g' >=, 'a' and, 'o' or */
    MR_EX_IF      /* children: value, condition, other value */
} mr_expr_kind;

typedef struct mr_expr mr_expr;
struct mr_expr {
    struct mr__expr_tree *tree; /* private: owns the node */
    mr_expr_kind kind;
    char op;
    int32_t depth;       /* number of levels of this subtree */
    uint32_t begin, end; /* byte range in the source text, for messages */
    int64_t i;
    double f;
    char *text;
    size_t text_size;
    size_t n;
    const mr_expr **children;
    char **keys;          /* NULL if no child has a key, else n entries */
    uint32_t *key_begins; /* byte offsets of the keys, 0 without one; NULL: none, or not parsed */
    size_t n_params;      /* LAMBDA */
    char **params;
};

/* Parses text that consists of one expression.
 * errors   MR_INVALID_ARGUMENT: the message (several lines) says what was expected, and shows the
 *          source line with a caret; st->offset is the byte
 * limits   text up to MR_EXPR_MAX_TEXT bytes, nesting MR_EXPR_MAX_DEPTH */
MR_API mr_code mr_expr_parse(const char *text, size_t size, const mr_expr **out,
                             mr_status *st) MR_NODISCARD;
MR_API const mr_expr *mr_expr_ref(const mr_expr *e);
MR_API void mr_expr_unref(const mr_expr *e);
/* The whole text that e was parsed from, to which begin and end refer; NUL-terminated. Borrowed
 * from e. */
MR_API const char *mr_expr_source(const mr_expr *e, size_t *size);
/* The byte that a message about e points at: the name of a method, otherwise the start of e. */
MR_API size_t mr_expr_place(const mr_expr *e);
/* The operator of a UNARY or BINARY node as text: "+", "and". */
MR_API const char *mr_expr_operator(const mr_expr *e);
/* Prints e as canonical text, which parses to an equal tree. Owned: mr_free. */
MR_API mr_code mr_expr_print(const mr_expr *e, char **out, mr_status *st) MR_NODISCARD;
/* Fails with the message and, unless text is NULL, the source line with a caret under byte `at`. */
MR_API mr_code mr_expr_fail(mr_status *st, mr_code code, const char *text, size_t size, size_t at,
                            const char *fmt, ...) MR_PRINTF(6, 7);
/* The same with MR_INVALID_ARGUMENT and the place of e. */
MR_API mr_code mr_expr_fail_at(mr_status *st, const mr_expr *e, const char *fmt, ...)
    MR_PRINTF(3, 4);

#ifdef __cplusplus
}
#endif
#endif
