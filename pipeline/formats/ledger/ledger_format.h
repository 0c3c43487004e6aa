/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_LEDGER_LEDGER_FORMAT_H
#define MR_PIPELINE_FORMATS_LEDGER_LEDGER_FORMAT_H
/* The format of a ledger, shared by writer and reader (little-endian):
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
 * The texts of all chunks form one text, a sequence of numbers (LEB128) and names:
 *   0, source, file, size, bytes    the name of a file, before its first record
 *   n + 1, then n records           an entry. Each record has source, file, ordinal and epoch, as
 *                                   differences (zigzag, modulo 2^64) from the previous record in
 *                                   the same entry or an earlier one; initially 0, 0, -1, 0 */
#include <stdint.h>

enum {
    MR__LEDGER_HEADER = 16,
    MR__LEDGER_VERSION = 1,
    MR__LEDGER_CHUNK = 12,
    MR__LEDGER_TEXT = 1 << 16,    /* maximum bytes of text in a chunk */
    MR__LEDGER_RECORDS = 1 << 26, /* maximum records in an entry */
    MR__LEDGER_NAME = 1 << 16     /* maximum bytes of a name */
};
#define MR__LEDGER_MAGIC "MRLEDGER"
#endif
