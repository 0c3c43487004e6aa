/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/tfrecord/zstd_records.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/formats/tfrecord/zstd_records_impl.h"
#include "pipeline/memory/alloc.h"
#include "tests/fault.h"
#include "tests/harness.h"

MR_ONE_THREAD;

enum { N = 300 };
static mr_status st;

/* A dictionary, and a frame of "text 7" that was made with it; owned. */
static void make(void **dictionary, size_t *size, mr_bytes *frame)
{
    static char all[N * 64];
    size_t sizes[N], used = 0;
    mr__zstd_record_writer *w = NULL;
    for (int i = 0; i < N; i++) {
        sizes[i] = (size_t)sprintf(all + used, "{\"name\": \"user %d\", \"city\": \"town %d\"}", i,
                                   i * 7919 % 1000);
        used += sizes[i];
    }
    mr_ok(mr__zstd_dictionary_train(all, sizes, N, dictionary, size, &st), &st);
    mr_check(*dictionary != NULL);
    mr_ok(mr__zstd_record_writer_open(&w, *dictionary, *size, &st), &st);
    mr_bytes made;
    mr_ok(mr__zstd_record_write(w, "text 7", 6, &made, &st), &st);
    void *copy = malloc(made.size);
    memcpy(copy, made.data, made.size);
    *frame = (mr_bytes){copy, made.size};
    mr__zstd_record_writer_close(w);
}

static mr_code read_one(const char *dictionary, const char *path, const mr_bytes *frame)
{
    mr_zstd_records *f = NULL;
    mr_array out = {0};
    mr_code rc = mr_zstd_records_open(&f, dictionary, NULL, &st);
    if (rc == MR_OK)
        rc = mr_zstd_records_read(f, path, frame, 1, 1, &out, &st);
    if (rc == MR_OK) {
        mr_eq_u64(out.rows, 1);
        mr_eq_mem(((const mr_bytes *)out.data)->data, "text 7", 6);
    }
    mr_array_reset(&out);
    mr_zstd_records_close(f);
    return rc;
}

static void put(const char *name, const void *bytes, size_t n)
{
    FILE *f = fopen(mr_test_path(name), "wb");
    mr_check(f && fwrite(bytes, 1, n, f) == n && fclose(f) == 0);
}

MR_TEST_SLOW(the_dictionary_is_the_one_named_or_lies_beside_the_file)
{
    void *dictionary = NULL;
    size_t size = 0;
    mr_bytes frame;
    make(&dictionary, &size, &frame);
    mr_check(mr_is_zstd_record(&frame));
    mr_check(!mr_is_zstd_record(&(mr_bytes){"text", 4}));
    put("a.dict", dictionary, size);
    char shard[600];
    snprintf(shard, sizeof shard, "%s", mr_test_path("a-00000-of-00001.tfrecord"));
    mr_ok(read_one(NULL, shard, &frame), &st);
    mr_ok(read_one(mr_test_path("a.dict"), "elsewhere", &frame), &st);
    mr_code_is(read_one(NULL, "elsewhere", &frame), MR_FAILED_PRECONDITION, &st);
    mr_has_str(st.message, "give its file");
    mr_code_is(read_one(mr_test_path("b.dict"), shard, &frame), MR_NOT_FOUND, &st);
    put("b.dict", "", 0);
    mr_code_is(read_one(mr_test_path("b.dict"), shard, &frame), MR_INVALID_ARGUMENT, &st);
    snprintf(shard, sizeof shard, "%s", mr_test_path("b-00000-of-00001.tfrecord"));
    mr_code_is(read_one(NULL, shard, &frame), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "compressed with dictionary");
    mr_code_is(read_one("/dev/zero", shard, &frame), MR_OUT_OF_RANGE, &st);
    mr_free(dictionary);
    free((void *)(uintptr_t)frame.data);
}

MR_TEST(frames_before_a_bad_one_are_read)
{
    mr__zstd_record_writer *w = NULL;
    mr_zstd_records *f = NULL;
    mr_array out = {0};
    mr_bytes made;
    mr_ok(mr__zstd_record_writer_open(&w, NULL, 0, &st), &st);
    mr_ok(mr__zstd_record_write(w, "text 7", 6, &made, &st), &st);
    mr_bytes v[3] = {made, made, {"(\xb5/\xfd, cut", 9}};
    mr_fault_each_allocation(n)
    {
        mr_code rc = mr_zstd_records_open(&f, NULL, NULL, &st);
        if (rc == MR_OK)
            rc = mr_zstd_records_read(f, "a", v, 3, 100, &out, &st);
        if (mr_fault_expect(rc, &st) == MR_OK)
            mr_eq_u64(out.rows, 2);
        mr_array_reset(&out);
        mr_zstd_records_close(f);
        f = NULL;
    }
    mr_ok(mr_zstd_records_open(&f, NULL, NULL, &st), &st);
    mr_ok(mr_zstd_records_read(f, "a", v, 3, 1, &out, &st), &st);
    mr_eq_u64(out.rows, 1);
    mr_array_reset(&out);
    mr_code_is(mr_zstd_records_read(f, "a", v + 2, 1, 100, &out, &st), MR_DATA_LOSS, &st);
    mr_zstd_records_close(f);
    mr__zstd_record_writer_close(w);
}
