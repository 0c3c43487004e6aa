/* SPDX-License-Identifier: Apache-2.0 */
/* Executes the programs installed next to this one: millrace-service, millrace-train. */
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <millrace/pipeline/graph/rewrite.h>
#include "cli.h"

static const char *const suffixes[] = {"-service", "-train"};

/* The path of the program with that suffix, next to this one. false: it cannot be determined. */
static bool path_beside(const char *suffix, char *path, size_t room)
{
    ssize_t got = readlink("/proc/self/exe", path, room - strlen(suffix) - 1);
    if (got <= 0)
        return false;
    size_t n = (size_t)got;
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        size_t k = strlen(suffixes[i]);
        if (n > k && memcmp(path + n - k, suffixes[i], k) == 0) {
            n -= k;
            break;
        }
    }
    memcpy(path + n, suffix, strlen(suffix) + 1);
    return true;
}

/* Executes the program with this suffix, next to this one. Returns an errno on failure. */
static int exec_beside(const char *suffix, char **argv)
{
    char path[PATH_MAX];
    if (!path_beside(suffix, path, sizeof path))
        return errno;
    execv(path, argv);
    return errno;
}

int cli_exec_train(int argc, char **argv)
{
    (void)argc;
    int why = exec_beside("-train", argv);
    fprintf(stderr,
            "millrace %s: millrace-train: %s; build it with oneDNN (libdnnl-dev) installed\n",
            argv[0], strerror(why));
    return CLI_FAILED;
}

/* Writes text to an unnamed file that stays open across exec; returns -1 on failure. */
static int keep_text(const char *text, size_t size)
{
    int fd = memfd_create("expression", 0);
    while (fd >= 0 && size) {
        ssize_t n = write(fd, text, size);
        if (n < 0) {
            close(fd);
            return -1;
        }
        text += n;
        size -= (size_t)n;
    }
    return fd;
}

void cli_try_service(const char *file, const char *text, size_t size)
{
    char **argv = cli_arguments(), *changed = NULL, name[32];
    int fd = -1;
    if (!cli_this.next)
        return;
    if (file) { /* a pipe cannot be read again */
        fd = keep_text(text, size);
        if (fd < 0)
            return;
        snprintf(name, sizeof name, "-f=/dev/fd/%d", fd);
        for (size_t i = 1; argv[i]; i++) {
            if (argv[i] == file)
                changed = argv[i], argv[i] = name + 3;
            else if (strncmp(argv[i], "-f=", 3) == 0 && argv[i] + 3 == file)
                changed = argv[i], argv[i] = name;
        }
    }
    exec_beside(cli_this.next, argv);
    for (size_t i = 1; changed && argv[i]; i++)
        if (argv[i] == name || argv[i] == name + 3)
            argv[i] = changed;
    if (fd >= 0)
        close(fd);
}

static mr_code refuse_input(void *ctx, const char *name, mr_status *st)
{
    (void)ctx;
    if (strcmp(name, "-") != 0)
        return MR_OK;
    return mr_fail(st, MR_INVALID_ARGUMENT,
                   "the pipeline reads the file - (standard input), but the expression was read "
                   "from there (-f -); give the pipeline as an argument, or in a file");
}

int cli_dataset(const char *file, const char *text, size_t size, mr_dataset **out)
{
    mr_status st;
    if (mr_dataset_from_text(text, size, NULL, out, &st) == MR_OK) {
        if (!file || strcmp(file, "-") != 0 ||
            mr_dataset_file_names(*out, refuse_input, NULL, &st) == MR_OK)
            return -1;
        return cli_fail(&st, CLI_USAGE);
    }
    /* A graph may look into files when it is built: what is wrong with them is not a usage error,
     * except for text that does not fit them. Nor is an op that only the service has; a pipe is
     * read once. */
    bool looked = st.file[0] || st.code == MR_NOT_FOUND || st.code == MR_DATA_LOSS || st.sys_errno;
    if (!looked)
        cli_try_service(file, text, size);
    return cli_fail(&st, looked && st.code != MR_INVALID_ARGUMENT ? CLI_FAILED : CLI_USAGE);
}
