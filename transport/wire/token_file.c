/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/wire/token_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/memory/alloc.h"
#include "pipeline/system/system.h"

/* Reads up to `most` bytes of the file. */
static mr_code read_file(const char *path, char *text, size_t most, size_t *n, mr_status *st)
{
    int fd = mr__sys->open(path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return mr_fail_errno(st, errno, "%s", path);
    ssize_t got = 1;
    for (*n = 0; got > 0 && *n<most; *n += got> 0 ? (size_t)got : 0)
        got = mr__sys->read(fd, text + *n, most - *n);
    int err = got < 0 ? errno : 0;
    mr__sys->close(fd);
    return err ? mr_fail_errno(st, err, "%s", path) : MR_OK;
}

mr_code mr__token_read(const char *path, mr__token *out, mr_status *st)
{
    *out = (mr__token){0};
    if (!path)
        path = getenv("MILLRACE_TOKEN_FILE");
    if (!path || !path[0])
        return MR_OK;
    char *text = mr_malloc(MR__MOST_TOKEN + 1);
    size_t n = 0;
    if (!text)
        return mr_fail_memory(st, MR__MOST_TOKEN, "a token");
    mr_code rc = read_file(path, text, MR__MOST_TOKEN + 1, &n, st);
    while (n && strchr(" \t\r\n", text[n - 1]))
        n--;
    if (rc == MR_OK && (n == 0 || n > MR__MOST_TOKEN))
        rc = mr_fail(st, MR_INVALID_ARGUMENT, "%s: a token has 1 to %d bytes", path,
                     (int)MR__MOST_TOKEN);
    if (rc == MR_OK)
        *out = (mr__token){text, n};
    else
        mr_free(text);
    return rc;
}

void mr__token_free(mr__token *t)
{
    mr_free((void *)(uintptr_t)t->data);
    *t = (mr__token){0};
}
