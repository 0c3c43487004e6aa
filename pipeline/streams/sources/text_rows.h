/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_STREAMS_SOURCES_TEXT_ROWS_H
#define MR_PIPELINE_STREAMS_SOURCES_TEXT_ROWS_H
/* For ops that read text files with one record per line into typed fields.
 *
 * Such an op is a table of parameters, a descriptor with the slots below and an mr__text_kind,
 * which parses one line. Its params begin with an mr_strs, the files; its state begins with an
 * mr__text_rows. A line that cannot be parsed is an error in its place, which names file, line and
 * field; the next pull continues after it.
 *
 * thread   as an op's slots */
#include "pipeline/functions/library/features.h"
#include "pipeline/streams/sources/file_source.h"

typedef struct mr__text_rows {
    mr__file_source source;
    mr__features *features;
    mr__sheet sheet; /* rows under construction */
    mr_array lines;  /* lines read; those from `at` on are still to be emitted */
    size_t at;
    size_t file;             /* the file that contains them */
    mr_file_position before; /* position of the first of them */
    uint64_t breaks;         /* line breaks within rows of the file, before line `at` */
    uint64_t breaks_before;  /* the same before the first line */
    uint64_t skip;           /* after a restore: lines to skip first */
    mr_buffer *head;         /* the file's header; NULL: it has none, or was not read */
} mr__text_rows;

typedef struct mr__text_kind {
    mr__file_kind files; /* first */
    size_t features_at;  /* offset in the params of a char * */
    bool json;           /* features may be records and lists of them */
    /* Puts the values of a line into the sheet; MR_END: the line is blank.
     * errors   MR_RESOURCE_EXHAUSTED, and any other, which fails the line */
    mr_code (*parse)(mr_iter *it, const mr_bytes *line, mr_status *st);
    /* Called for the first line of a file; MR_END: it is a header and kept as such. NULL: the first
     * line is like all others. An error ends the file. */
    mr_code (*begin)(mr_iter *it, const mr_bytes *line, mr_status *st);
} mr__text_kind;

mr_code mr__text_rows_open(mr_iter *it, mr_status *st);
mr_code mr__text_rows_next(mr_iter *it, size_t want, mr_block *out, mr_status *st);
void mr__text_rows_close(mr_iter *it);
mr_code mr__text_rows_save(mr_iter *it, mr_state_w *w, mr_status *st);
mr_code mr__text_rows_restore(mr_iter *it, mr_state_r *r, mr_status *st);
mr_code mr__text_rows_infer(const mr_dataset *self, const void *params, mr_spec **out,
                            mr_status *st);

/* For a descriptor; the op, which may have more state, sets infer, open, close and iter_size. */
#define MR__TEXT_ROWS_SLOTS                                                                        \
    .role = MR_ROLE_FILES, .next = mr__text_rows_next, .save = mr__text_rows_save,                 \
    .restore = mr__text_rows_restore, .save_shared = mr__file_list_save_shared,                    \
    .restore_shared = mr__file_list_restore_shared
#endif
