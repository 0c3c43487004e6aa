/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/shard_names.h"

#include <string.h>

const char *const mr__shard_endings[MR__SHARD_ENDINGS] = {"tfrecord", "jsonl", "npy", "arrow",
                                                          "parquet"};

/* Text after the prefix, with any digits for the zeros; then the ending. */
static const char shard_number[] = "-00000-of-00000.";
enum { NUMBER = sizeof shard_number - 1 };

size_t mr__shard_prefix(const char *name, size_t n)
{
    for (size_t e = 0; e < MR__SHARD_ENDINGS; e++) {
        size_t end = strlen(mr__shard_endings[e]), i = 0;
        if (n <= NUMBER + end || memcmp(name + n - end, mr__shard_endings[e], end) != 0)
            continue;
        const char *number = name + n - end - NUMBER;
        while (i < NUMBER && (shard_number[i] == '0' ? number[i] >= '0' && number[i] <= '9'
                                                     : number[i] == shard_number[i]))
            i++;
        if (i == NUMBER)
            return n - end - NUMBER;
    }
    return 0;
}

size_t mr__index_stem(const char *path)
{
    size_t n = strlen(path);
    return n > 4 && strcmp(path + n - 4, ".idx") == 0 ? n - 4 : 0;
}
