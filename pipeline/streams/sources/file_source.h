/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_STREAMS_SOURCES_FILE_SOURCE_H
#define MR_PIPELINE_STREAMS_SOURCES_FILE_SOURCE_H
/* For ops that read files of records: the list of files, the current reader, the position.
 *
 * Such an op consists of a table of parameters and a descriptor. Its params begin with an mr_strs,
 * the files; its state begins with an mr__file_source; op->kind is an mr__file_kind, which selects
 * the format; and its slots are the functions below. A damaged file is an error in its place; the
 * next pull continues with the next file. A missing or forbidden file ends the pipeline if its name
 * was given (mr_iter_names_given), else it is an error in its place too.
 *
 * thread   as an op's slots */
#include "pipeline/formats/reader.h"
#include "pipeline/streams/sources/file_list.h"

typedef struct mr__file_kind {
    const mr_format *format;
    size_t compression_at; /* offset in the params of a char *, one of mr__compression_names */
    size_t own_at;         /* and of the format's own options; 0: no such options */
    bool detects;          /* unless the compression is given, the first bytes of a file tell it */
    bool indexed;          /* files may have an index (record_index.h) */
    bool skips;            /* the format can skip records without reading them */
    size_t range_at;       /* if indexed: offset in the params of an mr_ints, the MR_P_RANGE */
    mr__record_count_fn
        *count; /* the records of a file, for access by number; NULL: by its index */
} mr__file_kind;

/* The names of compressions, terminated by NULL. */
extern const char *const mr__compression_names[];

typedef struct mr__file_source {
    const mr_strs *names;
    mr__file_list *list; /* NULL: literal names, or not matched yet */
    bool patterns, failed;
    bool by_number; /* little is read around a record */
    size_t file;    /* the current file, or the next */
    mr_reader *reader;
    uint64_t first;          /* number of the first record of the last read: if damage was skipped,
                                it differs from that of the position before the read */
    mr_file_position resume; /* with has_resume: where to resume in the file when it is opened */
    bool has_resume;
    uint64_t mark;           /* of the file, as in mr_file_opts; 0: not known */
    const void *own;         /* the format's own options, instead of those of the kind; or NULL */
    mr__record_set *records; /* NULL: not opened yet */
    uint64_t *marks;         /* of a position: those of the records' files; NULL: none */
    uint64_t begin, end;     /* with a range: of those records */
    mr_record_index *index;  /* of file number indexed_file, for skipping; NULL: no index */
    size_t indexed_file;
    bool has_indexed_file;
    /* The op's, if records are compressed individually (zstd_record_rows.h); else NULL. */
    struct mr__zstd_record_rows *frames;
} mr__file_source;

mr_code mr__file_source_open(mr_iter *it, mr_status *st);
mr_code mr__file_source_next(mr_iter *it, size_t want, mr_block *out, mr_status *st);
void mr__file_source_close(mr_iter *it);
mr_code mr__file_source_save(mr_iter *it, mr_state_w *w, mr_status *st);
mr_code mr__file_source_restore(mr_iter *it, mr_state_r *r, mr_status *st);
/* The file was opened, with this mark (0: not known).
 * errors   MR_FAILED_PRECONDITION, of no element: the source is to resume in another object, or the
 *          records were those of another one */
mr_code mr__file_source_set_mark(mr__file_source *s, uint64_t mark, mr_status *st);
/* Skips records by means of the files' indexes, up to the first file without one. */
mr_code mr__file_source_skip(mr_iter *it, uint64_t n, uint64_t *skipped, mr_status *st);
/* The number of records from the indexes of all files; unknown if a file has no index. */
int64_t mr__file_source_cardinality(const mr_dataset *self, const void *params, const int64_t *in);
/* For ops that make elements of records. _lines returns the next records of one file (*out must be
 * empty), the number of the file and the position of the first; _identify sets the records'
 * identities; _leave abandons the current file. */
mr_code mr__file_source_lines(mr_iter *it, size_t want, mr_array *out, size_t *file,
                              mr_file_position *at, mr_status *st) MR_NODISCARD;
mr_code mr__file_source_identify(mr_iter *it, mr_block *b, size_t file, uint64_t first,
                                 mr_status *st) MR_NODISCARD;
void mr__file_source_leave(mr_iter *it);
/* The name of file i, for messages. */
const char *mr__file_source_path(const mr__file_source *s, size_t i);
/* mr__file_source_save for position *at of `file`; at NULL: for the current position. */
mr_code mr__file_source_save_at(mr_iter *it, const mr_file_position *at, size_t file, mr_state_w *w,
                                mr_status *st) MR_NODISCARD;
mr_code mr__file_source_check(const void *params, mr_status *st);

/* op->indexed: files that are not compressed, read one after the other. */
mr_code mr__file_source_is_indexed(const mr_dataset *ds, const void *params,
                                   mr_status *st) MR_NODISCARD;
/* Access by number for all kinds. _count: op->count. _place: the file that holds record `number`,
 * and its number there; after _count. _at: op->at of readers that find records by number. */
mr_code mr__file_source_count(mr_iter *it, uint64_t *n, mr_status *st);
size_t mr__file_source_place(const mr__file_source *s, uint64_t number, int64_t *record);
mr_code mr__file_source_at(mr_iter *it, const uint64_t *index, size_t n, mr_block *out,
                           mr_status *st);
/* op->cardinality of a kind that counts. */
int64_t mr__file_source_counted(const mr_dataset *self, const void *params, const int64_t *in);

/* All slots, for the descriptor of an op that adds nothing. */
#define MR__FILE_SOURCE_SLOTS                                                                      \
    .iter_size = sizeof(mr__file_source), .role = MR_ROLE_FILES, .check = mr__file_source_check,   \
    .infer = mr__file_infer, .open = mr__file_source_open, .next = mr__file_source_next,           \
    .close = mr__file_source_close, .save = mr__file_source_save,                                  \
    .restore = mr__file_source_restore, .save_shared = mr__file_list_save_shared,                  \
    .restore_shared = mr__file_list_restore_shared
#endif
