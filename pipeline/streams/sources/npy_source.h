/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_STREAMS_SOURCES_NPY_SOURCE_H
#define MR_PIPELINE_STREAMS_SOURCES_NPY_SOURCE_H
/* For the ops npy and npz: an element is an entry of an array, or a record of the entries of
 * several. The params of npz are mr__table_params, whose columns are the arrays; those of npy lack
 * them.
 *
 * thread   as an op's slots */
#include "pipeline/formats/npy.h"
#include "pipeline/streams/sources/file_source.h"
#include "pipeline/streams/sources/table_source.h"

typedef struct mr__npy_state {
    mr__file_source source;
    mr__npy_opts opts;
    mr_strs arrays; /* borrowed from the params */
} mr__npy_state;

mr_code mr__npy_open(mr_iter *it, mr_status *st);
mr_code mr__npy_next(mr_iter *it, size_t want, mr_block *out, mr_status *st);
mr_code mr__npy_infer(const mr_dataset *self, const void *params, mr_spec **out, mr_status *st);
int64_t mr__npy_cardinality(const mr_dataset *self, const void *params, const int64_t *in);

typedef struct mr__npy_params {
    mr_strs files;
    char *compression; /* as in mr__table_params */
    char *schema;
} mr__npy_params;

#define MR__NPY_FILES_PARAM(T)                                                                     \
    MR_PARAM_WITH(T, files, MR_P_POSITIONAL | MR_P_VARIADIC | MR_P_PATTERN,                        \
                  .doc = "Paths, or patterns; several are read in the order given.")

/* For a descriptor; the op sets its name, texts, params and kind, an mr__file_kind. */
#define MR__NPY_SLOTS                                                                              \
    .order_doc = "by file, then along axis 0", .state_doc = "file and entry",                      \
    .count_doc = "the entries stated in the files", .iter_size = sizeof(mr__npy_state),            \
    .role = MR_ROLE_FILES, .props = MR_OP_LATE_COUNT, .check = mr__file_source_check,              \
    .infer = mr__npy_infer, .cardinality = mr__npy_cardinality, .open = mr__npy_open,              \
    .next = mr__npy_next, .close = mr__file_source_close, .save = mr__file_source_save,            \
    .restore = mr__file_source_restore, .save_shared = mr__file_list_save_shared,                  \
    .restore_shared = mr__file_list_restore_shared, .skip = mr__file_source_skip
#endif
