/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_STREAMS_ELEMENTS_ELEMENT_FILE_H
#define MR_PIPELINE_STREAMS_ELEMENTS_ELEMENT_FILE_H
/* Files of elements, as written by cache("file"), snapshot and save: a TFRecord file (tfrecord.h)
 * with several kinds of records, distinguished by their first byte.
 *
 *     [1 spec] [2 block] [2 block] ... [3 rows]
 *     [1 spec] [2 block] [2 block] ... [4 origin] [5 rows, place of 4]
 *
 *   1   "MRE1", the format's version, then the spec of the elements:
 *       a node: kind (0 a tensor or dataset, 1 tuple, 2 record)
 *         tensor or dataset   dtype, rank + 1, ragged, 1 + each dimension; for a dataset the node
 *                             of its elements
 *         tuple, record       number of children; each: its name (records), its node
 *   2   a block of elements
 *   3   the number of elements, 8 bytes, little-endian
 *   4   what the elements were made from (element_origin.h); caches and snapshots have it
 *   5   as 3, then the offset of record 4 in the file, 8 bytes, little-endian
 *
 * Numbers are LEB128, names and strings are bytes preceded by their number, blocks are encoded as
 * in position.c. The file is renamed to its final name when all of it is on disk; a file without
 * record 3 or 5 is damaged. Version 0.1 wrote no records 4 and 5.
 *
 * thread   one at a time per object */
#include "pipeline/engine/op_iterator.h"
#include "pipeline/streams/elements/element_origin.h"

typedef struct mr__element_writer mr__element_writer;
typedef struct mr__element_reader mr__element_reader;

mr_code mr__element_writer_open(mr__element_writer **out, const char *path, const mr_spec *spec,
                                mr_status *st) MR_NODISCARD;
/* On failure nothing of b is written. Unless memory was lacking, later calls fail too. */
mr_code mr__element_writer_add(mr__element_writer *w, const mr_block *b,
                               mr_status *st) MR_NODISCARD;
/* Renames the file to its final name and frees w, also on failure. origin and its inputs `read`:
 * NULL for a file without them. */
mr_code mr__element_writer_close(mr__element_writer *w, const mr__element_origin *origin,
                                 mr__inputs_read *read, mr_status *st) MR_NODISCARD;
/* Removes the unfinished file and frees w. NULL: nothing. */
void mr__element_writer_abort(mr__element_writer *w);

/* it: provides the options and counts the waits; may be NULL. The reader's spec is the file's.
 * errors   MR_NOT_FOUND and others as mr_reader_open; MR_DATA_LOSS: not a file of elements */
mr_code mr__element_reader_open(mr__element_reader **out, const mr_iter *it, const char *path,
                                mr_status *st) MR_NODISCARD;
const mr_spec *mr__element_reader_spec(const mr__element_reader *r);
/* Up to `want` rows, which must be of `spec`. MR_END; MR_DATA_LOSS */
mr_code mr__element_reader_next(mr__element_reader *r, const mr_spec *spec, size_t want,
                                mr_block *out, mr_status *st) MR_NODISCARD;
void mr__element_reader_close(mr__element_reader *r); /* NULL: nothing */

/* *rows = the number of elements in the file, from its last record. */
mr_code mr__element_file_count(const char *path, uint64_t *rows, mr_status *st) MR_NODISCARD;
/* *out = what the elements were made from, owned (mr__element_origin_reset); *has = false: the file
 * does not say.
 * errors   those of opening and reading it; MR_DATA_LOSS: what it says is damaged */
mr_code mr__element_file_origin(const char *path, mr__element_origin *out, bool *has,
                                mr_status *st) MR_NODISCARD;
#endif
