/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/files/safetensors.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "pipeline/memory/alloc.h"
#include "tests/fault.h"
#include "tests/harness.h"

MR_ONE_THREAD;

static mr_status st;
static const float kernel[6] = {1, -2, 3.5f, 0, 5, 1e-30f};
static const int64_t counts[2] = {-1, INT64_MAX};
static const uint8_t flags[3] = {0, 1, 255};

static const mr_named_tensor three[] = {
    {.name = "dense/kernel", .dtype = MR_FLOAT32, .rank = 2, .shape = {2, 3}, .data = kernel},
    {.name = "flags", .dtype = MR_UINT8, .rank = 1, .shape = {3}, .data = flags},
    {.name = "counts", .dtype = MR_INT64, .rank = 1, .shape = {2}, .data = counts},
    {.name = "scalar", .dtype = MR_FLOAT32, .rank = 0, .data = kernel + 2},
    {.name = "none", .dtype = MR_FLOAT64, .rank = 2, .shape = {0, 7}, .data = ""},
};
enum { N = sizeof three / sizeof *three };

MR_TEST(what_is_written_is_read)
{
    mr_safetensors *f;
    const char *path = mr_test_path("w.safetensors");
    mr_ok(mr_safetensors_write(path, three, N, &st), &st);
    mr_ok(mr_safetensors_open(&f, path, &st), &st);
    mr_eq_u64(mr_safetensors_count(f), N);
    for (size_t i = 0; i < N; i++) {
        const mr_named_tensor *t = mr_safetensors_find(f, three[i].name);
        mr_test_context("%s", three[i].name);
        mr_check(t != NULL);
        mr_eq_i64(t->dtype, three[i].dtype);
        mr_eq_i64(t->rank, three[i].rank);
        for (int k = 0; k < t->rank; k++)
            mr_eq_i64(t->shape[k], three[i].shape[k]);
        mr_eq_mem(t->data, three[i].data, mr_named_tensor_bytes(t));
    }
    mr_check(mr_safetensors_find(f, "dense") == NULL);
    mr_eq_str(mr_safetensors_metadata(f, "format"), "millrace 2");
    mr_check(mr_safetensors_metadata(f, "version") == NULL);
    mr_safetensors_close(f);
}

MR_TEST(every_flipped_bit_is_found)
{
    unsigned char bytes[4096];
    mr_safetensors *f;
    mr_ok(mr_safetensors_write(mr_test_path("w"), three, N, &st), &st);
    FILE *file = fopen(mr_test_path("w"), "rb");
    mr_check(file != NULL);
    size_t n = fread(bytes, 1, sizeof bytes, file), from = 8 + bytes[0] + 256U * bytes[1];
    fclose(file);
    mr_check(n > from && n < sizeof bytes);
    for (size_t bit = 0; bit < 8 * n; bit++) {
        mr_test_context("bit %zu of byte %zu", bit % 8, bit / 8);
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        mr_code rc = mr_safetensors_parse(&f, bytes, n, &st);
        mr_check(rc == MR_DATA_LOSS || (rc == MR_UNIMPLEMENTED && bit < 8 * from));
        if (bit >= 8 * from)
            mr_has_str(st.message, "the file has the CRC-32C");
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    mr_ok(mr_safetensors_parse(&f, bytes, n, &st), &st);
    mr_safetensors_close(f);
}

MR_TEST(values_begin_at_a_multiple_of_eight)
{
    FILE *f;
    unsigned char first[8];
    mr_ok(mr_safetensors_write(mr_test_path("w"), three, N, &st), &st);
    mr_check((f = fopen(mr_test_path("w"), "rb")) != NULL);
    mr_eq_u64(fread(first, 1, 8, f), 8);
    fclose(f);
    mr_eq_u64(first[0] % 8, 0);
}

MR_TEST(no_tensors_are_a_file_too)
{
    mr_safetensors *f;
    mr_ok(mr_safetensors_write(mr_test_path("w"), NULL, 0, &st), &st);
    mr_ok(mr_safetensors_open(&f, mr_test_path("w"), &st), &st);
    mr_eq_u64(mr_safetensors_count(f), 0);
    mr_safetensors_close(f);
}

MR_TEST(what_cannot_be_written_is_refused)
{
    const char *path = mr_test_path("w");
    const mr_named_tensor twice[] = {three[0], three[0]};
    mr_named_tensor one = three[0];
    mr_code_is(mr_safetensors_write(path, twice, 2, &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "two tensors are called dense/kernel");
    one.dtype = MR_STRING;
    mr_code_is(mr_safetensors_write(path, &one, 1, &st), MR_INVALID_ARGUMENT, &st);
    one = three[0];
    one.shape[1] = -1;
    mr_code_is(mr_safetensors_write(path, &one, 1, &st), MR_INVALID_ARGUMENT, &st);
    one = three[0];
    one.name = "\xff";
    mr_code_is(mr_safetensors_write(path, &one, 1, &st), MR_INVALID_ARGUMENT, &st);
    one.name = "__metadata__";
    mr_code_is(mr_safetensors_write(path, &one, 1, &st), MR_INVALID_ARGUMENT, &st);
    mr_code_is(mr_safetensors_write(mr_test_path("not/there"), three, N, &st), MR_NOT_FOUND, &st);
    mr_safetensors *f;
    mr_code_is(mr_safetensors_open(&f, path, &st), MR_NOT_FOUND, &st);
    mr_code_is(mr_safetensors_open(&f, mr_test_dir(), &st), MR_FAILED_PRECONDITION, &st);
}

/* Parses a file of this header and `data` bytes of data. */
static mr_code parse(const char *header, size_t data)
{
    unsigned char bytes[1024] = {0};
    size_t n = strlen(header);
    mr_safetensors *f = NULL;
    bytes[0] = (unsigned char)n;
    bytes[1] = (unsigned char)(n >> 8);
    memcpy(bytes + 8, header, n);
    mr_code rc = mr_safetensors_parse(&f, bytes, 8 + n + data, &st);
    mr_safetensors_close(f);
    return rc;
}

/* The checksum is of the values then, and may be left out. */
MR_TEST(files_of_before_are_read)
{
    static const struct {
        const char *metadata;
        mr_code rc;
    } cases[] = {{"\"format\":\"millrace\",\"crc32c\":\"8a9136aa\"", MR_OK},
                 {"\"format\":\"millrace\",\"crc32c\":\"8a9136ab\"", MR_DATA_LOSS},
                 {"\"format\":\"millrace\"", MR_OK},
                 {"\"crc32c\":\"8a9136aa\"", MR_OK},
                 {"\"format\":\"millrace 2\",\"crc32c\":\"8a9136aa\"", MR_DATA_LOSS},
                 {"\"format\":\"millrace 2\",\"crc32d\":\"8a9136aa\"", MR_DATA_LOSS},
                 {"\"format\":\"millrace 2\"", MR_DATA_LOSS}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char header[512];
        snprintf(header, sizeof header,
                 "{\"__metadata__\":{%s},\"a\":{\"dtype\":\"F32\",\"shape\":[8],"
                 "\"data_offsets\":[0,32]}}",
                 cases[i].metadata);
        mr_test_context("%s", header);
        mr_code_is(parse(header, 32), cases[i].rc, &st);
    }
}

MR_TEST(bad_headers_are_refused_with_what_is_wrong)
{
    static const struct {
        const char *header;
        size_t data;
        mr_code rc;
        const char *word;
    } cases[] = {
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}   ", 8, MR_OK, ""},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 7, MR_DATA_LOSS,
         "truncated"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 9, MR_DATA_LOSS,
         "1 bytes follow"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]}}", 8, MR_DATA_LOSS,
         "do not match"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}", 12, MR_DATA_LOSS,
         "begins at byte 4"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}", 8, MR_DATA_LOSS,
         "data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
         "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}",
         12, MR_DATA_LOSS, "tensor b begins at byte 4"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
         "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
         4, MR_DATA_LOSS, "not JSON"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}", 8, MR_DATA_LOSS,
         "dimension 0"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4611686018427387904],"
         "\"data_offsets\":[0,8]}}",
         8, MR_DATA_LOSS, "do not match"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 4,
         MR_UNIMPLEMENTED, "9 dimensions"},
        {"{\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4,
         MR_UNIMPLEMENTED, "F8_E4M3"},
        {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, MR_DATA_LOSS, "no shape"},
        {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, MR_DATA_LOSS, "no dtype"},
        {"{\"a\":7}", 0, MR_DATA_LOSS, "not an object"},
        {"{\"__metadata__\":{\"a\":1}}", 0, MR_DATA_LOSS, "not a string"},
        {"{\"__metadata__\":[]}", 0, MR_DATA_LOSS, "not an object"},
        {"{\"a\":", 0, MR_DATA_LOSS, "not JSON"},
        {"[]", 0, MR_DATA_LOSS, "not a safetensors file"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mr_test_context("%s and %zu bytes", cases[i].header, cases[i].data);
        mr_code_is(parse(cases[i].header, cases[i].data), cases[i].rc, &st);
        if (cases[i].rc != MR_OK)
            mr_has_str(st.message, cases[i].word);
    }
}

MR_TEST(what_is_too_short_is_truncated)
{
    static const unsigned char bytes[] = {16, 0, 0, 0, 0, 0, 0, 0, '{', '}'};
    static const unsigned char huge[] = {0, 0, 0, 0, 0, 0, 0, 0x80, '{', '}'};
    mr_safetensors *f;
    mr_code_is(mr_safetensors_parse(&f, bytes, 0, &st), MR_DATA_LOSS, &st);
    mr_code_is(mr_safetensors_parse(&f, bytes, 7, &st), MR_DATA_LOSS, &st);
    mr_has_str(st.message, "truncated");
    mr_code_is(mr_safetensors_parse(&f, bytes, 10, &st), MR_DATA_LOSS, &st);
    mr_has_str(st.message, "truncated");
    mr_code_is(mr_safetensors_parse(&f, huge, 10, &st), MR_DATA_LOSS, &st);
    mr_has_str(st.message, "not a safetensors file");
}

static void write_and_read(void)
{
    mr_safetensors *f = NULL;
    const char *path = mr_test_path("fault");
    mr_code rc = mr_fault_expect(mr_safetensors_write(path, three, N, &st), &st);
    if (rc == MR_OK && mr_fault_expect(mr_safetensors_open(&f, path, &st), &st) == MR_OK)
        mr_eq_u64(mr_safetensors_count(f), N);
    mr_safetensors_close(f);
}

MR_TEST(memory_may_run_out)
{
    mr_fault_each_allocation(n) write_and_read();
}

MR_TEST(system_calls_may_fail)
{
    mr_fault_each(n, MR_FAULT_SYSTEM_CALL, ENOSPC, false) write_and_read();
    mr_fault_each(n, MR_FAULT_SYSTEM_CALL, EINTR, false) write_and_read();
}
