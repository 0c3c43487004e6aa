/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_ENGINE_FINGERPRINT_INTERNAL_H
#define MR_PIPELINE_ENGINE_FINGERPRINT_INTERNAL_H
/* Numbers by which files of elements recognise the graph that they were made from. For pipeline/
 * and shard/.
 *
 * thread   any */
#include "pipeline/graph/dataset.h"

/* *h = FNV-1a of the graph's text; of the list of its ops if it has no text; of its protobuf form
 * if it contains more data than a text may have. text may be NULL; else *text = what was hashed,
 * owned (mr_free), NULL for the protobuf form.
 * errors   MR_RESOURCE_EXHAUSTED and others of mr_dataset_to_proto */
mr_code mr__graph_fingerprint(const mr_dataset *ds, uint64_t *h, char **text,
                              mr_status *st) MR_NODISCARD;
/* *h = FNV-1a of the graph's protobuf form.
 * errors   those of mr_dataset_to_proto */
mr_code mr__graph_proto_fingerprint(const mr_dataset *ds, uint64_t *h, mr_status *st) MR_NODISCARD;
/* *h = FNV-1a of the graph's outline (graph/named_inputs.h).
 * errors   those of mr__dataset_outline */
mr_code mr__graph_outline_fingerprint(const mr_dataset *ds, uint64_t *h,
                                      mr_status *st) MR_NODISCARD;
#endif
