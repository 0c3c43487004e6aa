/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_STREAMS_SOURCES_FILE_SOURCE_H
#define MR_PIPELINE_STREAMS_SOURCES_FILE_SOURCE_H
/* Ops that read files of records: the list of files, one reader after the other, the position.
 *
 * Such an op is a table of parameters and a descriptor. Its params begin with an mr_strs, the
 * files; its state begins with an mr__file_source; op->kind is an mr__file_kind, which says what a
 * file is read as; and its slots are the functions below. A file that cannot be opened or is
 * damaged is an error in its place; the next pull continues with the next file.
 *
 * thread   as an op's slots */
#include "pipeline/formats/reader.h"
#include "pipeline/streams/sources/file_list.h"

typedef struct mr__file_kind {
    const mr_format *format;
    size_t compression_at; /* offset in the params of a char *, one of mr__compression_names */
    size_t own_at;         /* and of the format's own options; 0: it has none */
    bool indexed;          /* files may have an index (record_index.h) */
    bool skips;            /* the format goes past records without reading them */
    size_t range_at;       /* with it: offset in the params of an mr_ints, the MR_P_RANGE */
} mr__file_kind;

/* What compression may be called, NULL-ended. */
extern const char *const mr__compression_names[];

typedef struct mr__file_source {
    const mr_strs *names;
    mr__file_list *list; /* NULL: names as they are, or not matched yet */
    bool patterns, failed;
    size_t file; /* the one being read, or the next */
    mr_reader *reader;
    uint64_t first;          /* number of the first record that was read last: not that of the
                                position before, where damage was gone past in between */
    mr_file_position resume; /* with has_resume: where to go on in the file when it is opened */
    bool has_resume;
    const void *own;         /* the format's own options, instead of those of the kind; or NULL */
    mr__record_set *records; /* NULL: not asked for yet */
    uint64_t begin, end;     /* with a range: of those records */
    mr_record_index *index;  /* of file number indexed_file, for skipping; NULL: it has none */
    size_t indexed_file;
    bool has_indexed_file;
    /* The op's, if records are to be unpacked (zstd_record_rows.h); NULL: they are not packed. */
    struct mr__zstd_record_rows *frames;
} mr__file_source;

mr_code mr__file_source_open(mr_iter *it, mr_status *st);
mr_code mr__file_source_next(mr_iter *it, size_t want, mr_block *out, mr_status *st);
void mr__file_source_close(mr_iter *it);
mr_code mr__file_source_save(mr_iter *it, mr_state_w *w, mr_status *st);
mr_code mr__file_source_restore(mr_iter *it, mr_state_r *r, mr_status *st);
/* Goes past records by the files' indexes, as far as there are any. */
mr_code mr__file_source_skip(mr_iter *it, uint64_t n, uint64_t *skipped, mr_status *st);
/* The number of records by the indexes of all files; unknown where one has none. */
int64_t mr__file_source_cardinality(const mr_dataset *self, const void *params, const int64_t *in);
/* For ops that make their elements of the records: the next records (*out is empty before) of one
 * file, its number and where the first stood; the records' identities; and giving the file up. */
mr_code mr__file_source_lines(mr_iter *it, size_t want, mr_array *out, size_t *file,
                              mr_file_position *at, mr_status *st) MR_NODISCARD;
mr_code mr__file_source_identify(mr_iter *it, mr_block *b, size_t file, uint64_t first,
                                 mr_status *st) MR_NODISCARD;
void mr__file_source_leave(mr_iter *it);
/* Name of file i, for messages. */
const char *mr__file_source_path(const mr__file_source *s, size_t i);
/* As mr__file_source_save, standing at *at of that file; at NULL: where it stands. */
mr_code mr__file_source_save_at(mr_iter *it, const mr_file_position *at, size_t file, mr_state_w *w,
                                mr_status *st) MR_NODISCARD;
mr_code mr__file_source_check(const void *params, mr_status *st);

/* MR_OK: any record of ds can be gone to, as far as its op and parameters say. errors
 * MR_INVALID_ARGUMENT: says why not */
mr_code mr__file_source_is_indexed(const mr_dataset *ds, mr_status *st) MR_NODISCARD;
/* For an iterator of such a dataset: its records, borrowed until it is closed, and those of them
 * [*begin, *end) that are its own.
 * errors   those of matching files and of mr__record_set_open */
mr_code mr__file_source_records(mr_iter *it, const mr__record_set **out, uint64_t *begin,
                                uint64_t *end, mr_status *st) MR_NODISCARD;

/* All of them, in the descriptor of an op that adds nothing. */
#define MR__FILE_SOURCE_SLOTS                                                                      \
    .iter_size = sizeof(mr__file_source), .role = MR_ROLE_FILES, .check = mr__file_source_check,   \
    .infer = mr__file_infer, .open = mr__file_source_open, .next = mr__file_source_next,           \
    .close = mr__file_source_close, .save = mr__file_source_save,                                  \
    .restore = mr__file_source_restore, .save_shared = mr__file_list_save_shared,                  \
    .restore_shared = mr__file_list_restore_shared
#endif
