/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_ARROW_IPC_MESSAGE_H
#define MR_PIPELINE_FORMATS_ARROW_IPC_MESSAGE_H
/* The metadata of a message of Arrow files, a table Message: version, header's type, header, bytes
 * of the body. */
#include "pipeline/formats/arrow_ipc/arrow_ipc_table.h"

#define MR__ARROW_FILE_HEAD "ARROW1\0" /* the first 8 bytes of a file; 6 of them end it */

enum { MR__ARROW_IS_SCHEMA = 1, MR__ARROW_IS_DICTIONARY = 2, MR__ARROW_IS_BATCH = 3 };

typedef struct mr__arrow_message {
    mr__flat flat; /* borrowed bytes */
    mr__flat_table header;
    int64_t kind, version, body_bytes;
} mr__arrow_message;

/* errors   MR_DATA_LOSS */
mr_code mr__arrow_message_read(const uint8_t *v, size_t n, mr__arrow_message *out,
                               mr_status *st) MR_NODISCARD;
/* Rows of a batch. errors MR_DATA_LOSS: not a number of rows */
mr_code mr__arrow_message_rows(mr__arrow_message *m, int64_t *rows, mr_status *st) MR_NODISCARD;
#endif
