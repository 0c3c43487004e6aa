/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_ARROW_IPC_ARROW_IPC_BATCH_H
#define MR_PIPELINE_FORMATS_ARROW_IPC_ARROW_IPC_BATCH_H
/* Messages of Arrow files; record batches and dictionaries as columns. Everything is checked before
 * it is used: buffers must be within the body and as long as the rows need, and offsets must
 * neither decrease nor exceed the values they index.
 *
 *   table            fields by number
 *   Message          version, the header's type, the header, bytes of the body
 *   RecordBatch      rows, nodes (length, nulls: 2 int64 for each field), buffers (offset in the
 *                    body, bytes: 2 int64), compression (codec, method), counts of variable buffers
 *   DictionaryBatch  id, a RecordBatch of one column, whether it extends the previous one
 *
 * thread   one at a time per object */
#include "pipeline/formats/arrow_ipc/arrow_ipc_schema.h"
#include "pipeline/formats/arrow_ipc/arrow_ipc_table.h"
#include "pipeline/formats/arrow_ipc/arrow_ipc_unpack.h"
#include "pipeline/memory/block.h"

/* ---- messages ---- */

/* The first 8 bytes of a file; the first 6 of them also end it. */
#define MR__ARROW_FILE_HEAD "ARROW1\0"

enum { MR__ARROW_IS_SCHEMA = 1, MR__ARROW_IS_DICTIONARY = 2, MR__ARROW_IS_BATCH = 3 };

typedef struct mr__arrow_message {
    mr__flat flat; /* borrowed bytes */
    mr__flat_table header;
    int64_t kind, version, body_bytes;
} mr__arrow_message;

/* Reads the metadata of a message. errors MR_DATA_LOSS */
mr_code mr__arrow_message_read(const uint8_t *v, size_t n, mr__arrow_message *out,
                               mr_status *st) MR_NODISCARD;
/* Number of rows of a batch. errors MR_DATA_LOSS: not a number of rows */
mr_code mr__arrow_message_rows(mr__arrow_message *m, int64_t *rows, mr_status *st) MR_NODISCARD;

/* ---- batches and dictionaries ---- */

/* Access to the body of a message. get: *data = `size` bytes at `offset` of the body, kept alive by
 * *owner (a new reference). */
typedef struct mr__arrow_body {
    int64_t bytes;
    void *ctx;
    mr_code (*get)(void *ctx, int64_t offset, size_t size, mr_buffer **owner, const uint8_t **data,
                   mr_status *st);
} mr__arrow_body;

typedef struct mr__arrow_loader mr__arrow_loader;

/* Flags in the nulls of mr__arrow_load_batch. */
#define MR__ARROW_UNEVEN UINT32_C(0x80000000)
#define MR__ARROW_WITHIN UINT32_C(0x40000000)
#define MR__ARROW_LEAF   UINT32_C(0x3fffffff)

/* Opens a loader for the columns of spec, a record; schema, spec and defaults (of its leaves, or
 * NULL; table_defaults.h) are borrowed until close.
 * errors   those of mr__arrow_schema_check */
mr_code mr__arrow_loader_open(mr__arrow_loader **out, const mr__arrow_schema *schema,
                              const mr_spec *spec, bool all, const mr_array *defaults,
                              mr_status *st) MR_NODISCARD;
void mr__arrow_loader_close(mr__arrow_loader *l); /* NULL: no effect */
/* Whether a column has values of dictionary id. */
bool mr__arrow_loader_wants(const mr__arrow_loader *l, int64_t id);
/* Whether every column of the file is requested: bodies are then read as a whole. */
bool mr__arrow_loader_wants_all(const mr__arrow_loader *l);
void mr__arrow_loader_forget(mr__arrow_loader *l); /* all dictionaries */
/* Loads a dictionary. errors MR_DATA_LOSS, those of unpacking and of get */
mr_code mr__arrow_load_dictionary(mr__arrow_loader *l, mr__arrow_message *m,
                                  const mr__arrow_body *body, mr_status *st) MR_NODISCARD;
/* Loads a record batch. *rows has the columns in the order of the leaves of the spec. *nulls is
 * NULL or a number for each row: 0, or 1 + the index of the leaf of the spec that is null, or
 * contains a null, in this row. With the bit MR__ARROW_UNEVEN, lists of the leaf from the third
 * level on differ in length instead.
 * MR__ARROW_WITHIN: the null is within a list. The values of such a row are undefined. Owned:
 * mr_free. */
mr_code mr__arrow_load_batch(mr__arrow_loader *l, mr__arrow_message *m, const mr__arrow_body *body,
                             mr_block *rows, uint32_t **nulls, mr_status *st) MR_NODISCARD;
#endif
