/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_CLI_EXPLAIN_GRAPH_H
#define MR_CLI_EXPLAIN_GRAPH_H
/* The ops of a graph as `millrace explain` lists them. */
#include "../cli.h"

typedef struct explained explained;

mr_code explained_new(const mr_dataset *ds, explained **out, mr_status *st) MR_NODISCARD;
void explained_free(explained *x); /* NULL: nothing */
/* Marks the ops in x that `before` lacks, and adds those that only `before` has. Graphs of
 * thousands of ops are not compared. */
mr_code explained_compare(explained *x, const explained *before, mr_status *st) MR_NODISCARD;
/* Prints a table, coloured on a terminal; or, for a graph that was not compared, a JSON list. */
void explained_print(const explained *x);
void explained_print_json(const explained *x);
#endif
