/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/remote/secret_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/system/name_scope.h"
#include "pipeline/system/retry.h"

enum { MOST_FILE = 1 << 20 };

mr_code mr__secret_file_read(const char *path, char **text, mr_status *st)
{
    *text = NULL;
    mr__name_scope names = mr__name_scope_enter_own(); /* not a file of the graph */
    int fd = mr__open_again(path, O_RDONLY | O_NONBLOCK);
    (void)mr__name_scope_set(names);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return MR_OK;
    mr_code rc = fd < 0
                     ? mr_fail_errno(st, errno, "cannot open %s, which may have credentials", path)
                     : MR_OK;
    char *room = rc == MR_OK ? mr_malloc(MOST_FILE + 1) : NULL;
    ssize_t n = room ? mr__read_all(fd, room, MOST_FILE, -1) : -1;
    if (rc == MR_OK && !room)
        rc = mr_fail_memory(st, MOST_FILE, "a file of credentials");
    else if (rc == MR_OK && n < 0)
        rc = mr_fail_errno(st, errno, "cannot read %s, which may have credentials", path);
    if (fd >= 0)
        mr__sys->close(fd);
    if (rc == MR_OK) {
        room[n] = '\0';
        *text = room;
    } else
        mr_free(room);
    return rc;
}

mr_code mr__secret_line_read(const char *path, char **text, mr_status *st)
{
    MR_TRY(mr__secret_file_read(path, text, st));
    size_t n = *text ? strlen(*text) : 0;
    while (n && strchr(" \t\r\n", (*text)[n - 1]))
        (*text)[--n] = '\0';
    return MR_OK;
}

mr_code mr__secret_copy(char **to, const char *from, mr_status *st)
{
    *to = mr_strdup(from);
    return *to ? MR_OK : mr_fail_memory(st, strlen(from), "credentials");
}

void mr__secret_free(char *text)
{
    if (text)
        explicit_bzero(text, strlen(text));
    mr_free(text);
}

const char *mr__variable(const char *name)
{
    const char *v = getenv(name);
    return v && *v ? v : NULL;
}

const char *mr__authorities(const char *first)
{
    const char *v = first ? mr__variable(first) : NULL;
    return v ? v : mr__variable("SSL_CERT_FILE");
}
