/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/reader.h"

#include "tests/pipeline/formats/record_files.h"

MR_ONE_THREAD;

/* A file's options with those of the format. */
typedef struct fixed_opts {
    mr_file_opts file;
    int64_t record, header, footer;
} fixed_opts;

static void expect(const char *text, fixed_opts o, const char *rows, mr_code opened, mr_code end)
{
    static const size_t wants[] = {1, 3, 1024};
    size_t n = strlen(text);
    mr_fixed_length_opts own = {o.record, o.header, o.footer};
    mr_file_opts opts = o.file;
    opts.own = &own;
    byte_string z = deflated(text, n, 15);
    bool plain = opts.compression == MR_COMPRESSION_NONE;
    write_file(mr_test_path("f"), plain ? (const void *)text : z.data, plain ? n : z.n);
    for (size_t k = 0; k < 3; k++) {
        mr_status st;
        mr_reader *r = NULL;
        mr_array a = {0};
        byte_string b = {0};
        mr_code_is(mr_reader_open(&r, &mr_format_fixed_length, mr_test_path("f"), &opts, &st),
                   opened, &st);
        if (opened != MR_OK) {
            mr_has_str(st.message, "record");
            continue;
        }
        put(&b, "", 0);
        b.data[0] = '\0';
        mr_code rc;
        while ((rc = mr_reader_read(r, wants[k], 1 << 18, &a, &st)) == MR_OK) {
            put_rows(&b, &a);
            mr_array_reset(&a);
        }
        mr_code_is(rc, end, &st);
        mr_eq_str((char *)b.data, rows);
        mr_reader_close(r);
    }
}

MR_TEST(records_lie_between_header_and_footer)
{
    for (int c = 0; c < 2; c++) {
        mr_file_opts file = {.compression = c ? MR_COMPRESSION_ZLIB : MR_COMPRESSION_NONE};
        expect("abcdef", (fixed_opts){file, 2, 0, 0}, "ab|cd|ef|", MR_OK, MR_END);
        expect("Habcdeff", (fixed_opts){file, 2, 1, 1}, "ab|cd|ef|", MR_OK, MR_END);
        expect("HHF", (fixed_opts){file, 7, 2, 1}, "", MR_OK, MR_END);
        expect("", (fixed_opts){file, 7, 0, 0}, "", MR_OK, MR_END);
    }
}

MR_TEST(a_body_that_is_no_multiple_is_refused)
{
    mr_file_opts zlib = {.compression = MR_COMPRESSION_ZLIB};
    expect("abcde", (fixed_opts){{0}, 2, 0, 0}, "", MR_INVALID_ARGUMENT, MR_END);
    expect("ab", (fixed_opts){{0}, 2, 2, 2}, "", MR_INVALID_ARGUMENT, MR_END);
    expect("abcde", (fixed_opts){zlib, 2, 0, 0}, "ab|cd|", MR_OK, MR_DATA_LOSS);
    expect("a", (fixed_opts){zlib, 2, 3, 0}, "", MR_OK, MR_DATA_LOSS);
    expect("x", (fixed_opts){{0}, 0, 0, 0}, "", MR_INVALID_ARGUMENT, MR_END);
    expect("x", (fixed_opts){{0}, 1, INT64_MAX, INT64_MAX}, "", MR_INVALID_ARGUMENT, MR_END);
}
