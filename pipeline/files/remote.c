/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/files/remote.h"

#include <string.h>

const char *mr__remote_hint(const char *path)
{
    static const char *const schemes[] = {"s3a:",   "hdfs:", "az:",  "abfs:", "abfss:", "wasb:",
                                          "wasbs:", "r2:",   "oci:", "dbfs:", "ftp:",   "sftp:"};
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        size_t n = strlen(schemes[i]);
        if (strncmp(path, schemes[i], n) == 0 && strncmp(path + n, "//", 2) == 0)
            return "; local files and the schemes s3, gs, hf, https and http are read: mount the "
                   "bucket or "
                   "copy the files, and use their local path";
    }
    static const char *const known[] = {"s3:/", "gs:/", "hf:/", "http:/", "https:/"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        size_t n = strlen(known[i]);
        if (strncmp(path, known[i], n) == 0 && path[n] != '/')
            return "; a URL has two slashes, of which objects for paths, such as Python's "
                   "pathlib.Path, drop one: pass a string";
    }
    return strncmp(path, "file://", 7) == 0 ? "; write the path without file://" : "";
}
