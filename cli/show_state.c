/* SPDX-License-Identifier: Apache-2.0 */
/* Positions of `millrace show` in files, and the type of an element. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "show.h"
#include <millrace/pipeline/formats/crc32c.h>
#include <millrace/pipeline/memory/alloc.h>

/* A position saved after the first pass is preceded by the number of its pass:
 *
 *   offset  size  meaning
 *   0       4     "MRE1"
 *   4       4     masked CRC-32C of the next field, little-endian
 *   8       8     passes ended before it, at least 1, little-endian
 *   16            the position */
enum { PASS_BYTES = 16 };

static void put_pass(unsigned char *out, int64_t epoch)
{
    memcpy(out, "MRE1", 4);
    for (int i = 0; i < 8; i++)
        out[8 + i] = (unsigned char)((uint64_t)epoch >> 8 * i);
    uint32_t crc = mr_crc32c_mask(mr_crc32c(out + 8, 8));
    for (int i = 0; i < 4; i++)
        out[4 + i] = (unsigned char)(crc >> 8 * i);
}

/* Removes and returns the pass number of a state file; 0 if it has none, or a damaged one. */
static int64_t take_pass(unsigned char *bytes, size_t *size)
{
    unsigned char good[PASS_BYTES];
    uint64_t epoch = 0;
    if (*size < PASS_BYTES)
        return 0;
    for (int i = 0; i < 8; i++)
        epoch |= (uint64_t)bytes[8 + i] << 8 * i;
    put_pass(good, (int64_t)epoch);
    if (epoch > INT64_MAX || memcmp(bytes, good, PASS_BYTES) != 0)
        return 0;
    *size -= PASS_BYTES;
    memmove(bytes, bytes + PASS_BYTES, *size);
    return (int64_t)epoch;
}

static int write_file(const char *path, const void *bytes, size_t size, int64_t epoch)
{
    unsigned char pass[PASS_BYTES];
    put_pass(pass, epoch);
    FILE *f = fopen(path, "wb");
    bool good = f && (!epoch || fwrite(pass, 1, sizeof pass, f) == sizeof pass) &&
                fwrite(bytes, 1, size, f) == size && fflush(f) == 0;
    int err = good ? 0 : errno;
    if (f && fclose(f) != 0 && good)
        err = errno;
    return err;
}

/* Positions are written atomically: to another name, then renamed. Anything but a regular file
 * (a pipe, /dev/stdout) is written in place, and never removed. */
static int save_state(const show_opts *o, const void *bytes, size_t size, int64_t epoch)
{
    const char *path = o->state;
    struct stat there;
    bool plain = stat(path, &there) != 0 || S_ISREG(there.st_mode);
    int err = 0;
    if (plain) {
        char *beside = mr_malloc(strlen(path) + sizeof ".partial");
        if (!beside)
            err = ENOMEM;
        else {
            memcpy(beside, path, strlen(path));
            memcpy(beside + strlen(path), ".partial", sizeof ".partial");
            err = write_file(beside, bytes, size, epoch);
            if (!err && rename(beside, path) != 0)
                err = errno;
            if (err)
                remove(beside);
        }
        mr_free(beside);
    } else
        err = write_file(path, bytes, size, epoch);
    if (!err)
        return CLI_OK;
    return cli_error(o->cmd, CLI_FAILED, "%s: the position could not be written: %s", path,
                     strerror(err));
}

/* The first bytes of a position tell a plain pipeline from one distributed over replicas. */
static bool is_of_the_other_kind(const show_opts *o, const char *bytes, size_t size)
{
    return size >= 3 && memcmp(bytes, o->distribution.has_replicas ? "MRP" : "MRD", 3) == 0;
}

int cli_load_state(const show_opts *o, void **bytes, size_t *size, int64_t *epoch)
{
    const char *path = o->restore;
    FILE *f = fopen(path, "rb");
    char *buf = NULL;
    size_t room = 0, n = 0, got = 0;
    if (f)
        do {
            if (mr_grow((void **)&buf, &room, n + 65536, 1, INT32_MAX, "a position", NULL) != MR_OK)
                break;
            got = fread(buf + n, 1, 65536, f);
            n += got;
        } while (got);
    if (!f || ferror(f) || !feof(f)) {
        int err = errno ? errno : EIO;
        if (f)
            fclose(f);
        mr_free(buf);
        return cli_error(o->cmd, CLI_FAILED, "%s: the position could not be read: %s", path,
                         strerror(err));
    }
    fclose(f);
    *epoch = take_pass((unsigned char *)buf, &n);
    if (is_of_the_other_kind(o, buf, n)) {
        mr_free(buf);
        return cli_error(o->cmd, CLI_FAILED,
                         "%s: the position was saved %s --replicas; restore it in the same way",
                         path, o->distribution.has_replicas ? "without" : "with");
    }
    *bytes = buf;
    *size = n;
    return CLI_OK;
}

int cli_store_state(const show_opts *o, mr_code rc, void *bytes, size_t size, int64_t epoch,
                    const mr_status *st)
{
    if (rc != MR_OK)
        return cli_fail(st, CLI_FAILED);
    int status = save_state(o, bytes, size, epoch);
    mr_free(bytes);
    return status;
}

void cli_warn_of_end(const show_opts *o, int64_t left)
{
    if (left > 0)
        fprintf(stderr,
                "millrace: warning: the data end after %" PRId64 " %s, before the %" PRId64
                " of --save-after; the position saved is the end\n",
                o->save_after - left, o->distribution.has_replicas ? "steps" : "elements",
                o->save_after);
}

int cli_show_spec(const show_opts *o, const mr_spec *spec)
{
    size_t size = mr_spec_format(spec, NULL, 0) + 1;
    char *text = mr_malloc(size);
    if (!text)
        return cli_error(o->cmd, CLI_FAILED, "out of memory for the type of an element");
    mr_spec_format(spec, text, size);
    puts(text);
    mr_free(text);
    return cli_flush(CLI_OK);
}
