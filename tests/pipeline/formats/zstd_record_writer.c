/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/tfrecord/zstd_records_impl.h"

#include <stdio.h>
#include <string.h>

#include "pipeline/memory/alloc.h"
#include "tests/fault.h"
#include "tests/harness.h"

MR_ONE_THREAD;

enum { N = 300 };

/* Samples that are alike, back to back. */
static size_t samples(char *out, size_t *sizes)
{
    size_t used = 0;
    for (int i = 0; i < N; i++) {
        sizes[i] = (size_t)sprintf(out + used, "{\"name\": \"user %d\", \"city\": \"town %d\"}", i,
                                   i * 7919 % 1000);
        used += sizes[i];
    }
    return used;
}

static mr_code round_trip(const void *dictionary, size_t size, const char *text, size_t *packed,
                          mr_status *st)
{
    mr__zstd_record_writer *w = NULL;
    mr__zstd_record_reader *r = NULL;
    mr_bytes frame = {NULL, 0};
    char back[256];
    size_t room = 0, n = 0;
    mr_code rc = mr__zstd_record_writer_open(&w, dictionary, size, st);
    if (rc == MR_OK)
        rc = mr__zstd_record_reader_open(&r, dictionary, size, st);
    if (rc == MR_OK)
        rc = mr__zstd_record_write(w, text, strlen(text), &frame, st);
    if (rc == MR_OK)
        rc = mr__zstd_record_room(&frame, &room, st);
    if (rc == MR_OK) {
        mr_eq_u64(room, strlen(text));
        mr_eq_u64(mr__zstd_record_dictionary(&frame), mr__zstd_record_reader_dictionary(r));
        rc = mr__zstd_record_read(r, &frame, back, room, &n, st);
    }
    if (rc == MR_OK) {
        mr_eq_u64(n, strlen(text));
        mr_eq_mem(back, text, n);
        *packed = frame.size;
    }
    mr__zstd_record_reader_close(r);
    mr__zstd_record_writer_close(w);
    return rc;
}

MR_TEST(a_dictionary_makes_small_records_smaller)
{
    static char all[N * 64];
    size_t sizes[N], size = 0, with = 0, without = 0;
    void *dictionary = NULL;
    mr_status st;
    samples(all, sizes);
    mr_fault_each_allocation(n)
    {
        mr_code rc =
            mr_fault_expect(mr__zstd_dictionary_train(all, sizes, N, &dictionary, &size, &st), &st);
        if (n == 0) {
            mr_ok(rc, &st);
            mr_check(dictionary && mr__is_zstd_dictionary(dictionary, size));
            mr_ok(
                round_trip(NULL, 0, "{\"name\": \"user 7\", \"city\": \"town 1\"}", &without, &st),
                &st);
            mr_ok(round_trip(dictionary, size, "{\"name\": \"user 7\", \"city\": \"town 1\"}",
                             &with, &st),
                  &st);
            mr_check(with < without);
        }
        mr_free(dictionary);
        dictionary = NULL;
    }
    mr_ok(mr__zstd_dictionary_train(all, sizes, 3, &dictionary, &size, &st), &st);
    mr_check(!dictionary); /* too few */
}

MR_TEST(every_allocation_of_reading_and_writing_may_fail)
{
    mr_status st;
    size_t packed;
    mr_fault_each_allocation(n)
    {
        mr_code rc = mr_fault_expect(round_trip(NULL, 0, "text", &packed, &st), &st);
        if (n == 0)
            mr_ok(rc, &st);
    }
    mr_ok(round_trip(NULL, 0, "", &packed, &st), &st);
}
