/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_PARAMS_EXPR_TREE_H
#define MR_PIPELINE_PARAMS_EXPR_TREE_H
/* Memory of a syntax tree: nodes, names and the source text are allocated in chunks with a common
 * lifetime, so that a large tree is cheap to build and is freed without recursion. */
#include "expr.h"

typedef struct mr__expr_tree mr__expr_tree;

/* Makes a tree with a NUL-terminated copy of its text and a count of 1; NULL if out of memory. */
mr__expr_tree *mr__expr_tree_new(const char *text, size_t size);
void mr__expr_tree_unref(mr__expr_tree *t);
const char *mr__expr_tree_text(const mr__expr_tree *t);
/* Zeroed memory that lives as long as the tree; NULL if out of memory. */
void *mr__expr_alloc(mr__expr_tree *t, size_t bytes);
#endif
