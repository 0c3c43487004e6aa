/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_PARAMS_EXPR_TREE_H
#define MR_PIPELINE_PARAMS_EXPR_TREE_H
/* Memory of a syntax tree: nodes, names and the source text lie in chunks that live and die
 * together, so that a large tree is cheap to make and is freed without recursion. */
#include "expr.h"

typedef struct mr__expr_tree mr__expr_tree;

/* A tree with a copy of its text (followed by a NUL byte), owned by one reference; NULL: no
 * memory. */
mr__expr_tree *mr__expr_tree_new(const char *text, size_t size);
void mr__expr_tree_unref(mr__expr_tree *t);
const char *mr__expr_tree_text(const mr__expr_tree *t);
/* Zeroed memory that lives as long as the tree; NULL: none. */
void *mr__expr_alloc(mr__expr_tree *t, size_t bytes);
#endif
