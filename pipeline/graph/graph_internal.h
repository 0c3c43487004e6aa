/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_GRAPH_GRAPH_INTERNAL_H
#define MR_PIPELINE_GRAPH_GRAPH_INTERNAL_H
/* Questions about a whole graph, for Millrace's own layers. */
#include "pipeline/graph/dataset.h"

/* The props of its op and of all ops below, or-ed, without those in functions. */
uint32_t mr__dataset_all_props(const mr_dataset *ds);
/* *out = the text of the graph, or its list of ops if it has no text; if it is long, its ends and a
 * hash, as positions have it. Owned. */
mr_code mr__graph_short_signature(const mr_dataset *ds, char **out, mr_status *st) MR_NODISCARD;
#endif
