/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_CLI_WRITE_H
#define MR_CLI_WRITE_H
/* JSON objects, one a line, as records of tf.train.Examples. */
#include <millrace/pipeline/formats/shards/shard_writer.h>
#include "../cli.h"

typedef struct cli_jsonl cli_jsonl;

/* The files, "-" for standard input; borrowed. spool: where what cannot be read twice is kept
 * while it is read, in the directory of that path, without a name. NULL: out of memory. */
cli_jsonl *cli_jsonl_new(const cli_texts *files, const char *spool);
void cli_jsonl_free(cli_jsonl *j); /* NULL: nothing */
/* Writes all lines to w. *again: a feature turned out to have another type than the one that it had
 * been written with (ints before the first float). What was written is to be dropped then, and a
 * second call, with a new w, writes all of it with types that are known now. */
mr_code cli_jsonl_write(cli_jsonl *j, mr_shard_writer *w, bool *again, mr_status *st) MR_NODISCARD;
#endif
