/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_STREAMS_ELEMENTS_ELEMENT_FILE_H
#define MR_PIPELINE_STREAMS_ELEMENTS_ELEMENT_FILE_H
/* Elements in a file, as cache("file"), snapshot and save write them: a TFRecord file (tfrecord.h)
 * of three kinds of records, which their first byte tells.
 *
 *     [1 spec] [2 block] [2 block] ... [3 rows]
 *
 *   1   "MRE1", the format's version, then the spec of the elements:
 *       a node: kind (0 a tensor or dataset, 1 tuple, 2 record)
 *         tensor or dataset   dtype, rank + 1, ragged, 1 + each dimension; of a dataset the node
 *                             of its elements
 *         tuple, record       number of children; each: its name (records), its node
 *   2   a block of elements
 *   3   the number of elements, 8 bytes, little-endian
 *
 * Numbers are LEB128, names and strings bytes with their number before them, blocks as position.c
 * says. The file gets its name when all of it is on the disk; one without record 3 is damaged.
 *
 * thread   one at a time per object */
#include "pipeline/engine/op_iterator.h"

typedef struct mr__element_writer mr__element_writer;
typedef struct mr__element_reader mr__element_reader;

mr_code mr__element_writer_open(mr__element_writer **out, const char *path, const mr_spec *spec,
                                mr_status *st) MR_NODISCARD;
/* On failure nothing of b is written; but for a lack of memory no later call will do better. */
mr_code mr__element_writer_add(mr__element_writer *w, const mr_block *b,
                               mr_status *st) MR_NODISCARD;
/* Gives the file its name and frees w, also on failure. */
mr_code mr__element_writer_close(mr__element_writer *w, mr_status *st) MR_NODISCARD;
/* Removes what was written and frees w. NULL: nothing. */
void mr__element_writer_abort(mr__element_writer *w);

/* it: what the waits and options are of; NULL: of nobody. The file's spec is the reader's.
 * errors   MR_NOT_FOUND and others as mr_reader_open; MR_DATA_LOSS: no file of elements */
mr_code mr__element_reader_open(mr__element_reader **out, const mr_iter *it, const char *path,
                                mr_status *st) MR_NODISCARD;
const mr_spec *mr__element_reader_spec(const mr__element_reader *r);
/* Up to `want` rows, which must be of `spec`. MR_END; MR_DATA_LOSS */
mr_code mr__element_reader_next(mr__element_reader *r, const mr_spec *spec, size_t want,
                                mr_block *out, mr_status *st) MR_NODISCARD;
void mr__element_reader_close(mr__element_reader *r); /* NULL: nothing */

/* *rows = how many elements the file has, from its last record. */
mr_code mr__element_file_count(const char *path, uint64_t *rows, mr_status *st) MR_NODISCARD;
#endif
