/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_LEDGER_LEDGER_FORMAT_H
#define MR_PIPELINE_FORMATS_LEDGER_LEDGER_FORMAT_H
/* What writer and reader of a ledger agree on (little-endian):
 *
 *   offset  size  meaning
 *   0       8     "MRLEDGER"
 *   8       1     version, 1
 *   9       1     1: its entries are steps; 0: elements
 *   10      6     zero
 *   16            chunks, each
 *     0     4     c, bytes of its data; 0: the end, nothing follows
 *     4     4     u, bytes of its text, at most 64 KiB
 *     8     4     masked CRC-32C of bytes 0 to 7, and of the data
 *     12    c     one zstd frame of u bytes
 *
 * The texts of all chunks make one text, a sequence of numbers (LEB128) and names:
 *   0, source, file, size, bytes    the name of a file, before its first record
 *   n + 1, then n records           an entry; of a record source, file, ordinal and epoch, each
 *                                   less that of the record before it (zigzag, modulo 2^64), in the
 *                                   same entry or an earlier one; at first 0, 0, -1, 0 */
#include <stdint.h>

enum {
    MR__LEDGER_HEADER = 16,
    MR__LEDGER_VERSION = 1,
    MR__LEDGER_CHUNK = 12,
    MR__LEDGER_TEXT = 1 << 16,    /* most bytes of text in a chunk */
    MR__LEDGER_RECORDS = 1 << 26, /* most records in an entry */
    MR__LEDGER_NAME = 1 << 16     /* most bytes of a name */
};
#define MR__LEDGER_MAGIC "MRLEDGER"
#endif
