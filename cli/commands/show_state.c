/* SPDX-License-Identifier: Apache-2.0 */
/* Positions of `millrace show` in files, and the type of an element. */
#include <endian.h>
#include <inttypes.h>
#include <string.h>

#include "show.h"
#include <millrace/pipeline/files/atomic_file.h>
#include <millrace/pipeline/files/whole_file.h>
#include <millrace/pipeline/crc32c.h>
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
    uint64_t passes = htole64((uint64_t)epoch);
    memcpy(out, "MRE1", 4);
    memcpy(out + 8, &passes, 8);
    uint32_t crc = htole32(mr_crc32c_mask(mr_crc32c(out + 8, 8)));
    memcpy(out + 4, &crc, 4);
}

size_t cli_state_head(const void *bytes, size_t size, int64_t *epoch)
{
    unsigned char good[PASS_BYTES];
    uint64_t passes;
    *epoch = 0;
    if (size < PASS_BYTES)
        return 0;
    memcpy(&passes, (const char *)bytes + 8, 8);
    int64_t n = (int64_t)le64toh(passes);
    put_pass(good, n);
    if (n < 0 || memcmp(bytes, good, PASS_BYTES) != 0)
        return 0;
    *epoch = n;
    return PASS_BYTES;
}

/* Removes and returns the pass number of a state file; 0 if it has none, or a damaged one. */
static int64_t take_pass(unsigned char *bytes, size_t *size)
{
    int64_t epoch;
    size_t head = cli_state_head(bytes, *size, &epoch);
    *size -= head;
    memmove(bytes, bytes + head, *size);
    return epoch;
}

/* The first bytes of a position tell a plain pipeline from one distributed over replicas. */
static bool is_of_the_other_kind(const show_opts *o, const char *bytes, size_t size)
{
    if (mr_is_job_position(bytes, size))
        return !o->distribution.has_replicas;
    return size >= 3 && memcmp(bytes, o->distribution.has_replicas ? "MRP" : "MRD", 3) == 0;
}

int cli_load_state(const show_opts *o, void **bytes, size_t *size, int64_t *epoch)
{
    mr_status st;
    void *all;
    size_t n;
    mr_file_read_opts opts = {.most = INT32_MAX, .cancel = cli_cancel()};
    if (mr_file_read(o->restore, &opts, &all, &n, &st) != MR_OK)
        return cli_interrupted() ? CLI_INTERRUPTED : cli_fail(&st, CLI_FAILED);
    *epoch = take_pass(all, &n);
    if (is_of_the_other_kind(o, all, n)) {
        mr_free(all);
        return cli_error(o->cmd, CLI_FAILED,
                         "%s: the position was saved %s --replicas; restore it in the same way",
                         o->restore, o->distribution.has_replicas ? "without" : "with");
    }
    *bytes = all;
    *size = n;
    return CLI_OK;
}

int cli_store_state(const show_opts *o, mr_code rc, void *bytes, size_t size, int64_t epoch,
                    mr_status *st)
{
    if (rc != MR_OK)
        return cli_fail(st, CLI_FAILED);
    size_t head = epoch ? PASS_BYTES : 0;
    unsigned char *all = mr_malloc(head + size);
    if (!all)
        rc = mr_fail_memory(st, head + size, "a position");
    else {
        if (epoch)
            put_pass(all, epoch);
        memcpy(all + head, bytes, size);
        rc = mr_file_replace(o->state, all, head + size, st);
    }
    mr_free(all);
    mr_free(bytes);
    return rc == MR_OK ? CLI_OK : cli_fail(st, CLI_FAILED);
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
