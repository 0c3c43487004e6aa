/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_OPS_PASS_H
#define MR_PIPELINE_OPS_PASS_H
/* What descriptors of ops that hand on their input's elements share. */
#include "pipeline/engine/iter.h"

/* infer: the elements of input 0. */
mr_code mr__infer_pass(const mr_dataset *self, const void *p, mr_spec **out, mr_status *st);
/* cardinality: as many as input 0. */
int64_t mr__cardinality_pass(const mr_dataset *self, const void *p, const int64_t *in);

/* Ends an infer: *out = spec, or the error that it could not be made. */
mr_code mr__inferred(mr_spec *spec, mr_spec **out, mr_status *st) MR_NODISCARD;
/* An error that the position carries what no save writes. */
mr_code mr__damaged(mr_status *st, const char *what);
/* Bytes of one element as far as its shape is known when the graph is built; 0: it is not. */
size_t mr__row_bytes(const mr_spec *spec);
#endif
