/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/fixed_length.h"

#include "tests/pipeline/formats/record_files.h"

static void expect(const char *text, mr_fixed_length_opts opts, const char *rows, mr_code opened,
                   mr_code end)
{
    static const size_t wants[] = {1, 3, 1024};
    size_t n = strlen(text);
    byte_string z = deflated(text, n, 15);
    bool plain = opts.file.compression == MR_COMPRESSION_NONE;
    write_file(mr_test_path("f"), plain ? (const void *)text : z.data, plain ? n : z.n);
    for (size_t k = 0; k < 3; k++) {
        mr_status st;
        mr_fixed_length_reader *r = NULL;
        mr_array a = {0};
        byte_string b = {0};
        mr_code_is(mr_fixed_length_reader_open(&r, mr_test_path("f"), &opts, &st), opened, &st);
        if (opened != MR_OK) {
            mr_has_str(st.message, "record");
            continue;
        }
        put(&b, "", 0);
        b.data[0] = '\0';
        mr_code rc;
        while ((rc = mr_fixed_length_reader_read(r, wants[k], 1 << 18, &a, &st)) == MR_OK) {
            put_rows(&b, &a);
            mr_array_reset(&a);
        }
        mr_code_is(rc, end, &st);
        mr_eq_str((char *)b.data, rows);
        mr_fixed_length_reader_close(r);
    }
}

MR_TEST(records_lie_between_header_and_footer)
{
    for (int c = 0; c < 2; c++) {
        mr_file_opts file = {.compression = c ? MR_COMPRESSION_ZLIB : MR_COMPRESSION_NONE};
        expect("abcdef", (mr_fixed_length_opts){file, 2, 0, 0}, "ab|cd|ef|", MR_OK, MR_END);
        expect("Habcdeff", (mr_fixed_length_opts){file, 2, 1, 1}, "ab|cd|ef|", MR_OK, MR_END);
        expect("HHF", (mr_fixed_length_opts){file, 7, 2, 1}, "", MR_OK, MR_END);
        expect("", (mr_fixed_length_opts){file, 7, 0, 0}, "", MR_OK, MR_END);
    }
}

MR_TEST(a_body_that_is_no_multiple_is_refused)
{
    mr_file_opts zlib = {.compression = MR_COMPRESSION_ZLIB};
    expect("abcde", (mr_fixed_length_opts){{0}, 2, 0, 0}, "", MR_INVALID_ARGUMENT, MR_END);
    expect("ab", (mr_fixed_length_opts){{0}, 2, 2, 2}, "", MR_INVALID_ARGUMENT, MR_END);
    expect("abcde", (mr_fixed_length_opts){zlib, 2, 0, 0}, "ab|cd|", MR_OK, MR_DATA_LOSS);
    expect("a", (mr_fixed_length_opts){zlib, 2, 3, 0}, "", MR_OK, MR_DATA_LOSS);
    expect("x", (mr_fixed_length_opts){{0}, 0, 0, 0}, "", MR_INVALID_ARGUMENT, MR_END);
    expect("x", (mr_fixed_length_opts){{0}, 1, INT64_MAX, INT64_MAX}, "", MR_INVALID_ARGUMENT,
           MR_END);
}
