/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of images. What resize gives is compared with the definition, pixel by pixel in double,
 * and with values that TensorFlow 2 gave for the same image. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <spng.h>
#include <turbojpeg.h>
#include <zlib.h>

#include "pipeline/engine/iterator.h"
#include "pipeline/formats/images/image_codec.h"
#include "pipeline/formats/tfrecord/tfrecord.h"
#include "pipeline/functions/descriptor.h"
#include "tests/fault.h"
#include "tests/harness.h"
#include "tests/pipeline/functions/evaluate.h"

MR_ONE_THREAD;

/* ---- helpers ---- */

typedef struct image {
    int h, w, c;
    unsigned char *v;
} image;

static image noise(int h, int w, int c, uint64_t seed)
{
    image m = {h, w, c, malloc((size_t)(h * w * c) + 1)};
    for (int i = 0; i < h * w * c; i++)
        m.v[i] = (unsigned char)mr_test_random(&seed);
    return m;
}

/* Something with edges and ramps, so that a JPEG of it has all frequencies. */
static image scene(int h, int w, int c)
{
    image m = {h, w, c, malloc((size_t)(h * w * c) + 1)};
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++)
            for (int k = 0; k < c; k++)
                m.v[(y * w + x) * c + k] =
                    (unsigned char)(128 + 60 * sin(0.11 * x + 0.5 * k) * cos(0.07 * y) +
                                    ((x / 23 + y / 17) % 2 ? 40 : -40));
    return m;
}

/* n images in a block of n rows. */
static void block_of(const image *m, size_t n, mr_block *b)
{
    mr_status st;
    const int64_t shape[] = {m->h, m->w, m->c};
    size_t bytes = (size_t)(m->h * m->w * m->c);
    mr_ok(mr_block_prepare(b, 1, &st), &st);
    b->rows = n;
    mr_ok(mr_array_alloc(&b->columns[0], MR_UINT8, 3, shape, n, &st), &st);
    for (size_t i = 0; i < n; i++)
        memcpy((char *)b->columns[0].data + i * bytes, m[i].v, bytes);
}

/* The result of one function of `in`, all of whose rows succeed. */
static void apply(const char *function, const mr_block *in, mr_block *out)
{
    const mr_array *a = &in->columns[0];
    mr_row_errors errors = MR_ROW_ERRORS_EMPTY;
    mr_spec *spec = mr_spec_tensor(a->dtype, a->rank, a->shape), *out_spec = NULL;
    mr_status st;
    mr_ok(evaluate_step(function, spec, in, &out_spec, out, &errors, &st), &st);
    if (errors.n)
        mr_fail_test("%s: %s", function, errors.v[0].status.message);
    mr_eq_u64(out->rows, in->rows);
    mr_row_errors_reset(&errors);
    mr_spec_unref(spec);
    mr_spec_unref(out_spec);
}

/* ---- resize by its definition ---- */

static double pixel(const image *m, int y, int x, int k)
{
    y = y < 0 ? 0 : y >= m->h ? m->h - 1 : y;
    x = x < 0 ? 0 : x >= m->w ? m->w - 1 : x;
    return m->v[(y * m->w + x) * m->c + k];
}

static double bilinear(const image *m, double y, double x, int k)
{
    int y0 = (int)floor(y), x0 = (int)floor(x);
    double fy = y - y0, fx = x - x0;
    return (1 - fy) * ((1 - fx) * pixel(m, y0, x0, k) + fx * pixel(m, y0, x0 + 1, k)) +
           fy * ((1 - fx) * pixel(m, y0 + 1, x0, k) + fx * pixel(m, y0 + 1, x0 + 1, k));
}

/* Weight of source pixel i for a result pixel, by the kind of sum. */
static double weight(const char *kind, int i, int out, double scale)
{
    if (strcmp(kind, "area") == 0) {
        double low = fmax(i, out * scale), high = fmin(i + 1, (out + 1) * scale);
        return high > low ? high - low : 0;
    }
    double wide = scale > 1 ? scale : 1, distance = fabs(i + 0.5 - (out + 0.5) * scale) / wide;
    return distance < 1 ? 1 - distance : 0;
}

static double weighed(const image *m, const char *kind, int y, int x, int k, double sy, double sx)
{
    double sum = 0, all = 0;
    for (int i = 0; i < m->h; i++)
        for (int j = 0; j < m->w; j++) {
            double w = weight(kind, i, y, sy) * weight(kind, j, x, sx);
            sum += w * pixel(m, i, j, k);
            all += w;
        }
    return sum / all;
}

static double wanted(const image *m, const char *kind, int h, int w, int y, int x, int k)
{
    double sy = (double)m->h / h, sx = (double)m->w / w;
    if (strcmp(kind, "nearest") == 0)
        return pixel(m, (int)floor((y + 0.5) * sy), (int)floor((x + 0.5) * sx), k);
    if (strcmp(kind, "bilinear") == 0)
        return bilinear(m, (y + 0.5) * sy - 0.5, (x + 0.5) * sx - 0.5, k);
    return weighed(m, kind, y, x, k, sy, sx);
}

static void check_resize(const image *m, const char *kind, const char *arguments, int h, int w)
{
    mr_block in = MR_BLOCK_EMPTY, out = MR_BLOCK_EMPTY;
    char function[160];
    snprintf(function, sizeof function, "x => cast(resize(x, [%d, %d]%s), \"float64\")", h, w,
             arguments);
    mr_test_context("%s of %d x %d x %d", function, m->h, m->w, m->c);
    block_of(m, 1, &in);
    apply(function, &in, &out);
    mr_eq_i64(out.columns[0].shape[0], h);
    mr_eq_i64(out.columns[0].shape[1], w);
    mr_eq_i64(out.columns[0].shape[2], m->c);
    const double *v = out.columns[0].data;
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++)
            for (int k = 0; k < m->c; k++)
                mr_eq_f64(v[(y * w + x) * m->c + k], wanted(m, kind, h, w, y, x, k), 1e-3);
    mr_block_reset(&in);
    mr_block_reset(&out);
    mr_test_context("%s", "");
}

MR_TEST(resize_is_its_definition)
{
    static const int sizes[][4] = {{5, 7, 5, 7},   {5, 7, 10, 14}, {8, 8, 4, 4}, {9, 13, 4, 5},
                                   {31, 17, 3, 2}, {4, 6, 9, 5},   {1, 1, 3, 3}, {16, 5, 1, 1},
                                   {3, 40, 7, 11}, {2, 2, 1, 5}};
    static const int channels[] = {1, 2, 3, 4};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int c = 0; c < 4; c++) {
            image m = noise(sizes[i][0], sizes[i][1], channels[c], i * 10 + (size_t)c);
            int h = sizes[i][2], w = sizes[i][3];
            check_resize(&m, "bilinear", "", h, w);
            check_resize(&m, "antialias", ", antialias=true", h, w);
            check_resize(&m, "area", ", method=\"area\"", h, w);
            check_resize(&m, "nearest", ", method=\"nearest\"", h, w);
            free(m.v);
        }
}

/* TensorFlow 2.21's tf.image.resize of a 5 x 4 image, pixel i being (37 i + 11) mod 256. */
static const struct {
    int h, w;
    const char *arguments;
    float v[42];
} tensorflow[] = {
    {2, 3, "", {128.166672f, 177.5f, 66.833313f, 178.166672f, 131.5f, 84.833344f}},
    {7, 6, "", {11,          29.5f,       54.166672f,  78.833344f,  103.5f,      122,
                95.571426f,  114.071426f, 138.738098f, 163.40477f,  114.928574f, 60.285717f,
                128.142853f, 146.642853f, 171.309509f, 195.976196f, 129.214294f, 56.285728f,
                51,          69.5f,       94.166672f,  118.833344f, 143.5f,      162,
                156.71431f,  175.21431f,  169.40477f,  72.166641f,  66.357132f,  84.857132f,
                152.714279f, 171.214279f, 171.499985f, 98.642853f,  98.928574f,  117.428574f,
                91,          109.5f,      134.166672f, 158.833344f, 183.5f,      202}},
    {2,
     3,
     ", antialias=true",
     {100.2818298f, 138.863647f, 104.136368f, 140.2817993f, 132.318176f, 116.209091f}},
    {7,
     6,
     ", antialias=true",
     {11,          29.5f,       54.166672f,  78.833336f,  103.5f,      122,         95.571426f,
      114.071426f, 138.738098f, 163.40477f,  114.928574f, 60.285717f,  128.142853f, 146.642853f,
      171.309525f, 195.976181f, 129.214279f, 56.285728f,  51,          69.5f,       94.166672f,
      118.833344f, 143.5f,      162,         156.71431f,  175.214294f, 169.404755f, 72.166634f,
      66.357124f,  84.857124f,  152.714279f, 171.214279f, 171.499985f, 98.642853f,  98.928574f,
      117.428574f, 91,          109.5f,      134.166672f, 158.833344f, 183.5f,      202}},
    {2,
     3,
     ", method=\"area\"",
     {87.449997f, 133.699997f, 103.149986f, 135.449997f, 130.4999847f, 125.549995f}},
    {7,
     6,
     ", method=\"area\"",
     {11,          29.5f,       47.999996f,  85.000008f,  103.500015f, 121.999969f, 99.800003f,
      118.300018f, 136.799988f, 173.800018f, 115.499992f, 57.199982f,  137.399979f, 155.899979f,
      174.399963f, 211.399994f, 127.499962f, 43.599972f,  51,          69.500008f,  88,
      125.000015f, 143.500031f, 161.999969f, 169.400055f, 187.90004f,  206.400055f, 38.599995f,
      57.100002f,  75.599983f,  155.799927f, 174.299896f, 192.799896f, 76.199966f,  94.699966f,
      113.199921f, 91.000015f,  109.500015f, 128.000015f, 165.000046f, 183.500076f, 201.999985f}},
    {2, 3, ", method=\"nearest\"", {159, 233, 14, 199, 17, 54}},
    {7, 6, ", method=\"nearest\"", {11,  48,  48,  85,  122, 122, 159, 196, 196, 233, 14,
                                    14,  159, 196, 196, 233, 14,  14,  51,  88,  88,  125,
                                    162, 162, 199, 236, 236, 17,  54,  54,  199, 236, 236,
                                    17,  54,  54,  91,  128, 128, 165, 202, 202}},
};

MR_TEST(resize_is_tensorflows)
{
    image m = {5, 4, 1, malloc(20)};
    mr_block in = MR_BLOCK_EMPTY, out = MR_BLOCK_EMPTY;
    for (int i = 0; i < 20; i++)
        m.v[i] = (unsigned char)(i * 37 + 11);
    block_of(&m, 1, &in);
    for (size_t k = 0; k < sizeof tensorflow / sizeof *tensorflow; k++) {
        int h = tensorflow[k].h, w = tensorflow[k].w;
        char function[120];
        snprintf(function, sizeof function, "x => cast(resize(x, [%d, %d]%s), \"float32\")", h, w,
                 tensorflow[k].arguments);
        mr_test_context("%s", function);
        apply(function, &in, &out);
        for (int i = 0; i < h * w; i++)
            mr_eq_f64(((const float *)out.columns[0].data)[i], tensorflow[k].v[i], 1e-3);
    }
    mr_block_reset(&in);
    mr_block_reset(&out);
    free(m.v);
}

MR_TEST(resize_takes_any_numbers)
{
    mr_eq_str(evaluate(1, "x => resize([[[0], [8]], [[8], [16]]], [1, 4])"),
              "[[[4.0], [6.0], [10.0], [12.0]]]");
    mr_eq_str(evaluate(1, "x => cast([[[0], [8]]], \"float64\")",
                       "x => resize(x, [1, 1], method=\"area\")"),
              "[[[4.0]]]");
    mr_eq_str(evaluate(1, "x => cast([[[0], [8]]], \"float16\")", "x => resize(x, [1, 1])"),
              "[[[4.0]]]");
    mr_eq_str(evaluate(1, "x => resize([[[1], [300]]], [1, 4], method=\"nearest\")"),
              "[[[1], [1], [300], [300]]]");
}

MR_TEST(resize_takes_batches_and_computed_sizes)
{
    mr_eq_str(evaluate(2, "x => resize([[[[x]]], [[[7]]]], [1, 2])"),
              "[[[[0.0], [0.0]]], [[[7.0], [7.0]]]]; [[[[1.0], [1.0]]], [[[7.0], [7.0]]]]");
    mr_eq_str(evaluate(3, "x => resize([[[1], [2]]], [1, x], method=\"nearest\")"),
              "[[]]; [[[2]]]; [[[1], [2]]]");
    mr_eq_str(evaluate(2, "x => zeros([x + 1, 2, 1], \"uint8\")", "x => resize(x, [1, 1])"),
              "[[[0.0]]]; [[[0.0]]]");
}

MR_TEST(resize_refuses_what_is_no_image_or_size)
{
    mr_has_str(evaluate(1, "x => resize([[1, 2]], [1, 1])"), "the shape is [1, 2]");
    mr_has_str(evaluate(1, "x => resize([[[\"a\"]]], [1, 1])"), "resize expects an image: numbers");
    mr_has_str(evaluate(1, "x => resize([[[1]]], [1])"), "expects [height, width], not 1 numbers");
    mr_has_str(evaluate(1, "x => resize([[[1]]], [-1, 2])"), "negative");
    mr_has_str(evaluate(1, "x => resize([[[1]]], [1, 1], method=\"cubic\")"), "cubic");
    mr_has_str(evaluate(1, "x => resize([[[1]]], [1, x - 1])"), "!");
    mr_has_str(evaluate(1, "x => resize(zeros([0, 1, 1]), [1, 1])"), "without pixels");
    mr_has_str(evaluate(1, "x => resize(zeros([x + 2, 1], \"uint8\"), [1, 1])"),
               "the shape is [?, 1]");
}

/* ---- moving pixels ---- */

MR_TEST(pixels_are_moved_as_named)
{
#define FOUR "[[[1], [2], [3]], [[4], [5], [6]]]"
    mr_eq_str(evaluate(1, "x => flip_left_right(" FOUR ")"), "[[[3], [2], [1]], [[6], [5], [4]]]");
    mr_eq_str(evaluate(1, "x => flip_up_down(" FOUR ")"), "[[[4], [5], [6]], [[1], [2], [3]]]");
    mr_eq_str(evaluate(1, "x => rotate90(" FOUR ")"), "[[[3], [6]], [[2], [5]], [[1], [4]]]");
    mr_eq_str(evaluate(1, "x => rotate90(" FOUR ", 2)"), "[[[6], [5], [4]], [[3], [2], [1]]]");
    mr_eq_str(evaluate(1, "x => rotate90(" FOUR ", -1)"), "[[[4], [1]], [[5], [2]], [[6], [3]]]");
    mr_eq_str(evaluate(1, "x => rotate90(" FOUR ", k=-4)"), FOUR);
    mr_eq_str(evaluate(1, "x => flip_left_right([[[1, 2], [3, 4]]])"), "[[[3, 4], [1, 2]]]");
    mr_eq_str(evaluate(1, "x => flip_left_right([[[true], [false]]])"), "[[[false], [true]]]");
    mr_eq_str(evaluate(1, "x => flip_left_right([[[[1], [2]]], [[[3], [4]]]])"),
              "[[[[2], [1]]], [[[4], [3]]]]");
    mr_eq_str(evaluate(1, "x => flip_up_down(zeros([0, 2, 1]))"), "[]");
    mr_eq_str(evaluate(2, "x => zeros([1, x + 1, 1], \"uint8\") + cast(x, \"uint8\")",
                       "x => flip_left_right(x)"),
              "[[[0]]]; [[[1], [1]]]");
}

/* Pixels of every width in bytes, turned four times, are what they were. */
MR_TEST(four_quarter_turns_change_nothing)
{
    for (int c = 1; c <= 9; c++) {
        image m = noise(3, 5, c, (uint64_t)c);
        mr_block in = MR_BLOCK_EMPTY, out = MR_BLOCK_EMPTY;
        block_of(&m, 1, &in);
        apply("x => rotate90(rotate90(flip_up_down(flip_left_right(x)), k=3), k=-1)", &in, &out);
        mr_eq_mem(out.columns[0].data, m.v, (size_t)(15 * c));
        mr_block_reset(&in);
        mr_block_reset(&out);
        free(m.v);
    }
}

MR_TEST(parts_are_cut_and_frames_put_round)
{
#define NINE "[[[1], [2], [3]], [[4], [5], [6]], [[7], [8], [9]]]"
    mr_eq_str(evaluate(1, "x => crop(" NINE ", 1, 0, 2, 2)"), "[[[4], [5]], [[7], [8]]]");
    mr_eq_str(evaluate(3, "x => crop(" NINE ", x, 2 - x, 1, 1)"), "[[[3]]]; [[[5]]]; [[[7]]]");
    mr_eq_str(evaluate(3, "x => crop(" NINE ", 0, 0, 1, x)"), "[[]]; [[[1]]]; [[[1], [2]]]");
    mr_has_str(evaluate(1, "x => crop(" NINE ", 2, 0, 2, 2)"), "exceed the image's 3");
    mr_has_str(evaluate(1, "x => crop(" NINE ", 0, -1, 2, 2)"), "negative");
    mr_has_str(evaluate(4, "x => crop(" NINE ", x, 0, 1, 1)"),
               "[[[7]]]; !crop of 1 x 1 at row 3, column 0 leaves an image of 3 x 3");
    mr_has_str(evaluate(3, "x => crop(" NINE ", 0, x, 1, 2)"),
               "[[[2], [3]]]; !crop of 1 x 2 at row 0, column 2 leaves an image of 3 x 3");
    mr_has_str(evaluate(1, "x => crop(" NINE ", 0, 0, x + 4, 1)"), "crop of 4 x 1 from an image");
    mr_eq_str(evaluate(1, "x => central_crop(" NINE ", 0.5)"), "[[[1], [2], [3]], [[4], [5], [6]], "
                                                               "[[7], [8], [9]]]");
    mr_eq_str(evaluate(1, "x => central_crop(" NINE ", 0.3)"), "[[[5]]]");
    mr_eq_str(evaluate(1, "x => central_crop(" NINE ", 1)"), NINE);
    mr_has_str(evaluate(1, "x => central_crop(" NINE ", 0)"), "at most 1");
    mr_eq_str(evaluate(1, "x => pad_to([[[1]]], [2, 4])"),
              "[[[0], [1], [0], [0]], [[0], [0], [0], [0]]]");
    mr_eq_str(evaluate(1, "x => pad_to([[[1.5]]], [1, 2], value=-0.5)"), "[[[1.5], [-0.5]]]");
    mr_eq_str(evaluate(1, "x => pad_to(" NINE ", [3, 3])"), NINE);
    mr_has_str(evaluate(1, "x => pad_to(" NINE ", [2, 4])"), "3 rows, more than 2");
    mr_has_str(evaluate(1, "x => pad_to(" NINE ", [3, x + 2])"), "larger than 3 x 2");
    mr_has_str(evaluate(1, "x => pad_to(cast([[[1]]], \"uint8\"), [2, 2], value=256)"),
               "256 is not a valid uint8");
    mr_has_str(evaluate(1, "x => pad_to([[[1]]], [2, 2], value=0.5)"), "0.5 is not a valid int64");
    mr_eq_str(evaluate(1, "x => pad_to(cast([[[1]]], \"int8\"), [1, 2], value=-128)"),
              "[[[1], [-128]]]");
}

MR_TEST(values_are_weighed_and_scaled)
{
    mr_eq_str(evaluate(1, "x => grayscale([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]])"),
              "[[[0.2989], [0.587], [0.114]]]");
    mr_eq_str(evaluate(1, "x => grayscale(cast([[[255, 255, 255], [10, 20, 30]]], \"uint8\"))"),
              "[[[255], [18]]]");
    mr_eq_str(evaluate(1, "x => grayscale(cast([[[101, 100, 95]]], \"int8\"))"), "[[[100]]]");
    mr_has_str(evaluate(1, "x => grayscale([[[1.0]]])"), "expects 3 channels, not 1");
    mr_has_str(evaluate(1, "x => grayscale(zeros([1, 1, x + 1]))"), "expects 3 channels, not 1");
    mr_eq_str(
        evaluate(1, "x => normalize(cast([[[10, 20]]], \"uint8\"), mean=[4, 5], stddev=[2, 3])"),
        "[[[3.0, 5.0]]]");
    mr_eq_str(evaluate(1, "x => normalize([[[1, 2, 3]]], [1], [2])"), "[[[0.0, 0.5, 1.0]]]");
    mr_has_str(evaluate(1, "x => normalize([[[1, 2, 3]]], [1, 2], [2])"), "mean has 2 numbers");
    mr_has_str(evaluate(1, "x => normalize([[[1, 2, 3]]], [1], [0])"), "one is 0");
    mr_has_str(evaluate(1, "x => normalize(zeros([1, 1, x + 2]), [1, 2, 3], [1])"), "do not match");
}

/* ---- JPEG ---- */

/* An image as a literal of the text form is long: the block is made by hand. */
static void block_of_strings(const mr_bytes *v, size_t n, mr_block *b)
{
    mr_status st;
    mr_ok(mr_block_prepare(b, 1, &st), &st);
    b->rows = n;
    mr_ok(mr_array_alloc(&b->columns[0], MR_STRING, 0, NULL, n, &st), &st);
    memcpy(b->columns[0].data, v, n * sizeof *v);
}

static mr_bytes jpeg_of(const image *m, int quality)
{
    mr_status st;
    void *data;
    size_t size;
    mr_ok(mr__jpeg_encode(m->v, m->h, m->w, m->c, quality, &data, &size, &st), &st);
    return (mr_bytes){data, size};
}

/* The pixels are those that libjpeg-turbo decodes, for color, gray and each ratio. */
MR_TEST(a_jpeg_is_decoded_as_by_its_library)
{
    static const int sizes[][2] = {{1, 1}, {8, 8}, {33, 47}, {64, 100}};
    for (size_t i = 0; i < 4; i++)
        for (int c = 1; c <= 3; c += 2)
            for (int as = 1; as <= 3; as += 2)
                for (int ratio = 1; ratio <= 8; ratio *= 2) {
                    image m = scene(sizes[i][0], sizes[i][1], c);
                    mr_bytes s = jpeg_of(&m, 90);
                    mr_block in = MR_BLOCK_EMPTY, out = MR_BLOCK_EMPTY;
                    char function[80];
                    snprintf(function, sizeof function,
                             "x => decode_jpeg(x, channels=%d, ratio=%d)", as, ratio);
                    mr_test_context("%s of %d x %d x %d", function, m.h, m.w, c);
                    block_of_strings(&s, 1, &in);
                    apply(function, &in, &out);
                    int h = (m.h + ratio - 1) / ratio, w = (m.w + ratio - 1) / ratio;
                    const mr_array *a = &out.columns[0];
                    mr_eq_i64(a->shape[0], h);
                    mr_eq_i64(a->shape[1], w);
                    mr_eq_i64(a->shape[2], as);
                    unsigned char *want = malloc((size_t)(h * w * as));
                    tjhandle tj = tjInitDecompress();
                    mr_check(tjDecompress2(tj, (const unsigned char *)s.data, s.size, want, w, 0, h,
                                           as == 1 ? TJPF_GRAY : TJPF_RGB, 0) == 0);
                    mr_eq_mem(a->data, want, (size_t)(h * w * as));
                    tjDestroy(tj);
                    free(want);
                    mr_block_reset(&in);
                    mr_block_reset(&out);
                    mr_free((void *)(uintptr_t)s.data);
                    free(m.v);
                }
    mr_test_context("%s", "");
}

MR_TEST(images_of_several_sizes_make_a_ragged_column)
{
    image a = scene(9, 12, 3), b = scene(5, 6, 3);
    mr_bytes s[] = {jpeg_of(&a, 90), jpeg_of(&b, 90), {"\xFF\xD8\xFFnothing", 10}};
    mr_block in = MR_BLOCK_EMPTY, out = MR_BLOCK_EMPTY;
    mr_row_errors errors = MR_ROW_ERRORS_EMPTY;
    mr_spec *spec = mr_spec_tensor(MR_STRING, 0, NULL), *out_spec = NULL;
    mr_status st;
    block_of_strings(s, 3, &in);
    mr_ok(evaluate_step("x => decode_image(x)", spec, &in, &out_spec, &out, &errors, &st), &st);
    mr_eq_u64(errors.n, 1);
    mr_eq_u64(errors.v[0].row, 2);
    mr_has_str(errors.v[0].status.message, "decode_image: the header of a JPEG image: ");
    mr_eq_u64(out.rows, 2);
    mr_eq_i64(out.columns[0].storage, MR_RAGGED);
    mr_eq_i64(mr_array_row_shape(&out.columns[0], 0)[0], 9);
    mr_eq_i64(mr_array_row_shape(&out.columns[0], 1)[1], 6);
    mr_row_errors_reset(&errors);
    mr_spec_unref(spec);
    mr_spec_unref(out_spec);
    mr_block_reset(&in);
    mr_block_reset(&out);
    for (int i = 0; i < 2; i++)
        mr_free((void *)(uintptr_t)s[i].data);
    free(a.v);
    free(b.v);
}

MR_TEST(a_jpeg_comes_back_nearly_as_it_was)
{
    mr_eq_str(evaluate(1, "x => cast(ones([8, 8, 3]) * 100.0, \"uint8\")",
                       "x => encode_jpeg(x, quality=100)", "x => decode_jpeg(x)",
                       "x => (size(x), min(x), max(x))"),
              "(192, 100, 100)");
    mr_has_str(evaluate(1, "x => encode_jpeg(zeros([2, 2, 2], \"uint8\"))"), "1 or 3 channels");
    mr_has_str(evaluate(1, "x => encode_jpeg(zeros([2, 2, 3]))"), "an image: uint8");
    mr_has_str(evaluate(1, "x => encode_jpeg(zeros([x, 2, 3], \"uint8\"))"), "at most 65500 rows");
    mr_has_str(evaluate(1, "x => encode_jpeg(zeros([2, 2, 3], \"uint8\"), quality=0)"), "quality");
    mr_eq_str(evaluate(1, "x => encode_jpeg(zeros([2, 8, 8, 3], \"uint8\"))", "x => decode_jpeg(x)",
                       "x => (size(x), max(x))"),
              "(384, 0)");
}

MR_TEST(what_is_no_image_is_named)
{
    mr_has_str(evaluate(1, "x => decode_jpeg(\"\")"), "decode_jpeg: expected a JPEG image, "
                                                      "found an empty string");
    mr_has_str(evaluate(1, "x => decode_jpeg(\"GIF89a\")"),
               "not a JPEG image: 6 bytes that begin with 47 49 46");
    mr_has_str(evaluate(1, "x => decode_png(encode_jpeg(zeros([1, 1, 1], \"uint8\")))"),
               "expected a PNG image, found a JPEG image");
    mr_has_str(evaluate(1, "x => decode_image(\"x\")"), "not a JPEG or PNG image");
    mr_has_str(evaluate(1, "x => decode_jpeg(\"a\", channels=4)"), "1 channel (gray) or 3 (RGB)");
    mr_has_str(evaluate(1, "x => decode_jpeg(\"a\", channels=5)"), "channels");
    mr_has_str(evaluate(1, "x => decode_jpeg(\"a\", ratio=3)"), "1, 2, 4 or 8, not 3");
}

/* Every cut of an image is an error; so is one changed in the middle of its pixels, or it gives
 * some image. */
MR_TEST(a_cut_image_is_an_error)
{
    image m = scene(40, 56, 3);
    mr_bytes s = jpeg_of(&m, 90);
    mr__image_decoder d = {0};
    mr__image_info info;
    mr_status st;
    unsigned char pixels[40 * 56 * 3];
    for (size_t n = 0; n < s.size - 2; n++) {
        mr_test_context("the first %zu of %zu bytes", n, s.size);
        unsigned char *part = malloc(n + 1);
        memcpy(part, s.data, n);
        mr_code rc = mr__image_header(&d, MR__IMAGE_JPEG, part, n, 0, &info, &st);
        if (rc == MR_OK)
            rc = mr__image_decode(&d, &info, part, n, pixels, &st);
        mr_code_is(rc, MR_INVALID_ARGUMENT, &st);
        free(part);
    }
    mr__image_decoder_reset(&d);
    mr_free((void *)(uintptr_t)s.data);
    free(m.v);
}

MR_TEST(bytes_between_segments_do_no_harm)
{
    image m = scene(16, 16, 3);
    mr_bytes s = jpeg_of(&m, 90);
    mr__image_decoder d = {0};
    mr__image_info info;
    mr_status st;
    unsigned char *more = malloc(s.size + 3), want[16 * 16 * 3], got[16 * 16 * 3];
    memcpy(more, s.data, s.size - 2);
    memcpy(more + s.size - 2, "abc\xFF\xD9", 5);
    mr_ok(mr__image_header(&d, MR__IMAGE_ANY, s.data, s.size, 0, &info, &st), &st);
    mr_ok(mr__image_decode(&d, &info, s.data, s.size, want, &st), &st);
    mr_ok(mr__image_decode(&d, &info, more, s.size + 3, got, &st), &st);
    mr_eq_mem(want, got, sizeof want);
    mr__image_decoder_reset(&d);
    free(more);
    mr_free((void *)(uintptr_t)s.data);
    free(m.v);
}

MR_TEST(an_error_names_file_and_record)
{
    mr_status st;
    mr_tfrecord_writer *w = NULL;
    image m = scene(64, 64, 3);
    mr_bytes s = jpeg_of(&m, 90);
    mr_ok(mr_tfrecord_writer_open(&w, mr_test_path("a.tfrecord"), NULL, &st), &st);
    mr_ok(mr_tfrecord_writer_append(w, s.data, s.size, &st), &st);
    mr_ok(mr_tfrecord_writer_append(w, s.data, s.size - 40, &st), &st);
    mr_ok(mr_tfrecord_writer_append(w, s.data, s.size, &st), &st);
    mr_ok(mr_tfrecord_writer_close(w, &st), &st);
    char text[512], shown[2048];
    snprintf(text, sizeof text, "tfrecord(\"%s\").map(x => decode_jpeg(x))",
             mr_test_path("a.tfrecord"));
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    mr_dataset *ds = mr_test_graph(text);
    mr_ok(mr_iterator_open(&it, ds, NULL, &st), &st);
    mr_ok(mr_iterator_next(it, 1, &b, &st), &st);
    mr_eq_i64(b.columns[0].shape[1], 64);
    mr_code_is(mr_iterator_next(it, 1, &b, &st), MR_INVALID_ARGUMENT, &st);
    mr_status_format(&st, shown, sizeof shown);
    mr_has_str(shown, "a.tfrecord: record 1 at byte ");
    mr_has_str(shown, "decode_jpeg: decoding a JPEG image: ");
    mr_ok(mr_iterator_next(it, 1, &b, &st), &st);
    mr_code_is(mr_iterator_next(it, 1, &b, &st), MR_END, &st);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    mr_free((void *)(uintptr_t)s.data);
    free(m.v);
}

/* A resize that averages may decode at a smaller size: about the same pixels. One that does not, or
 * a ratio that is given, sees all of them. */
MR_TEST(a_resize_that_averages_is_about_the_same_of_a_smaller_image)
{
    static const char *const ways[] = {"antialias=true", "antialias=false", "method=\"area\"",
                                       "method=\"nearest\""};
    image m = scene(240, 320, 3);
    mr_bytes s = jpeg_of(&m, 95);
    mr_block in = MR_BLOCK_EMPTY, out = MR_BLOCK_EMPTY, whole = MR_BLOCK_EMPTY;
    block_of_strings(&s, 1, &in);
    for (int kind = 0; kind < 4; kind++)
        for (int h = 14; h <= 130; h += 29) {
            char function[160];
            const char *how = ways[kind];
            snprintf(function, sizeof function,
                     "x => cast(resize(decode_jpeg(x), [%d, %d], %s), \"float32\")", h, h, how);
            apply(function, &in, &out);
            snprintf(function, sizeof function,
                     "x => cast(resize(decode_jpeg(x, ratio=1), [%d, %d], %s), \"float32\")", h, h,
                     how);
            apply(function, &in, &whole);
            mr_test_context("%s", function);
            const float *a = out.columns[0].data, *b = whole.columns[0].data;
            double sum = 0;
            size_t n = (size_t)(3 * h * h);
            for (size_t i = 0; i < n; i++)
                sum += fabs((double)a[i] - (double)b[i]);
            if (kind)
                mr_eq_f64(sum, 0, 0);
            else
                mr_check(sum / (double)n < 2);
            /* It does take another way where eight times the size is there. */
            if (!kind && h == 14)
                mr_check(sum > 0);
        }
    mr_block_reset(&in);
    mr_block_reset(&out);
    mr_block_reset(&whole);
    mr_free((void *)(uintptr_t)s.data);
    free(m.v);
}

/* ---- PNG ---- */

static mr_bytes png_of(const image *m, int type, int depth, bool palette_alpha)
{
    struct spng_ihdr header = {.width = (uint32_t)m->w,
                               .height = (uint32_t)m->h,
                               .bit_depth = (uint8_t)depth,
                               .color_type = (uint8_t)type};
    struct spng_plte palette = {.n_entries = 4};
    struct spng_trns alpha = {.n_type3_entries = 2, .type3_alpha = {7, 9}};
    for (uint32_t i = 0; i < 4; i++)
        palette.entries[i] = (struct spng_plte_entry){
            .red = (uint8_t)(i * 10), .green = (uint8_t)(i * 20), .blue = (uint8_t)(i * 30)};
    spng_ctx *png = spng_ctx_new(SPNG_CTX_ENCODER);
    int error;
    spng_set_option(png, SPNG_ENCODE_TO_BUFFER, 1);
    mr_check(spng_set_ihdr(png, &header) == 0);
    if (type == SPNG_COLOR_TYPE_INDEXED)
        mr_check(spng_set_plte(png, &palette) == 0);
    if (palette_alpha)
        mr_check(spng_set_trns(png, &alpha) == 0);
    size_t bytes = (size_t)(m->h * m->w * m->c), size;
    mr_check(spng_encode_image(png, m->v, bytes, SPNG_FMT_PNG, SPNG_ENCODE_FINALIZE) == 0);
    void *data = spng_get_png_buffer(png, &size, &error);
    mr_check(data != NULL);
    spng_ctx_free(png);
    return (mr_bytes){data, size};
}

static const char *decoded_png(const mr_bytes *s, int channels)
{
    static char text[512];
    mr_block in = MR_BLOCK_EMPTY, out = MR_BLOCK_EMPTY;
    const mr_row_errors none = MR_ROW_ERRORS_EMPTY;
    char function[80];
    snprintf(function, sizeof function, "x => decode_png(x, channels=%d)", channels);
    block_of_strings(s, 1, &in);
    apply(function, &in, &out);
    mr_spec *spec = mr_spec_tensor(MR_UINT8, 3, out.columns[0].shape);
    evaluate_print(spec, &out, &none, text, sizeof text);
    mr_spec_unref(spec);
    mr_block_reset(&in);
    mr_block_reset(&out);
    return text;
}

MR_TEST(a_png_is_decoded_to_any_channels)
{
    unsigned char v[] = {1, 2, 3, 4, 0, 3, 100, 200};
    image gray = {1, 2, 1, v}, both = {1, 2, 2, v}, rgb = {1, 2, 3, v}, rgba = {1, 2, 4, v};
    mr_bytes s = png_of(&gray, SPNG_COLOR_TYPE_GRAYSCALE, 8, false);
    mr_eq_str(decoded_png(&s, 0), "[[[1], [2]]]");
    mr_eq_str(decoded_png(&s, 1), "[[[1], [2]]]");
    mr_eq_str(decoded_png(&s, 2), "[[[1, 255], [2, 255]]]");
    mr_eq_str(decoded_png(&s, 3), "[[[1, 1, 1], [2, 2, 2]]]");
    mr_eq_str(decoded_png(&s, 4), "[[[1, 1, 1, 255], [2, 2, 2, 255]]]");
    free((void *)(uintptr_t)s.data);
    s = png_of(&both, SPNG_COLOR_TYPE_GRAYSCALE_ALPHA, 8, false);
    mr_eq_str(decoded_png(&s, 0), "[[[1, 2], [3, 4]]]");
    mr_eq_str(decoded_png(&s, 1), "[[[1], [3]]]");
    mr_eq_str(decoded_png(&s, 3), "[[[1, 1, 1], [3, 3, 3]]]");
    free((void *)(uintptr_t)s.data);
    s = png_of(&rgb, SPNG_COLOR_TYPE_TRUECOLOR, 8, false);
    mr_eq_str(decoded_png(&s, 0), "[[[1, 2, 3], [4, 0, 3]]]");
    mr_eq_str(decoded_png(&s, 1), "[[[2], [2]]]");
    mr_eq_str(decoded_png(&s, 4), "[[[1, 2, 3, 255], [4, 0, 3, 255]]]");
    free((void *)(uintptr_t)s.data);
    s = png_of(&rgba, SPNG_COLOR_TYPE_TRUECOLOR_ALPHA, 8, false);
    mr_eq_str(decoded_png(&s, 0), "[[[1, 2, 3, 4], [0, 3, 100, 200]]]");
    mr_eq_str(decoded_png(&s, 3), "[[[1, 2, 3], [0, 3, 100]]]");
    mr_eq_str(decoded_png(&s, 2), "[[[2, 4], [13, 200]]]");
    free((void *)(uintptr_t)s.data);
    s = png_of(&gray, SPNG_COLOR_TYPE_INDEXED, 8, false);
    mr_eq_str(decoded_png(&s, 0), "[[[10, 20, 30], [20, 40, 60]]]");
    free((void *)(uintptr_t)s.data);
    s = png_of(&gray, SPNG_COLOR_TYPE_INDEXED, 8, true);
    mr_eq_str(decoded_png(&s, 0), "[[[10, 20, 30, 9], [20, 40, 60, 255]]]");
    mr_eq_str(decoded_png(&s, 3), "[[[10, 20, 30], [20, 40, 60]]]");
    free((void *)(uintptr_t)s.data);
    /* Samples of 16 bits, in the machine's order: the upper 8 remain. */
    uint16_t wide[] = {0x1234, 0xFFEE};
    image deep = {1, 4, 1, (unsigned char *)wide};
    deep.w = 2;
    deep.c = 2;
    s = png_of(&deep, SPNG_COLOR_TYPE_GRAYSCALE, 16, false);
    mr_eq_str(decoded_png(&s, 0), "[[[18], [255]]]");
    free((void *)(uintptr_t)s.data);
}

MR_TEST(a_damaged_png_is_an_error)
{
    unsigned char v[] = {1, 2, 3, 4, 0, 3, 100, 200};
    image gray = {2, 4, 1, v};
    mr_bytes s = png_of(&gray, SPNG_COLOR_TYPE_GRAYSCALE, 8, false);
    unsigned char *part = malloc(s.size);
    mr__image_decoder d = {0};
    mr__image_info info;
    mr_status st;
    unsigned char pixels[8];
    /* The checksum of the last chunk, which is empty, is not looked at. */
    for (size_t n = 0; n < s.size - 4; n++) {
        mr_test_context("the first %zu bytes", n);
        memcpy(part, s.data, n);
        mr_code rc = mr__image_header(&d, MR__IMAGE_PNG, part, n, 0, &info, &st);
        if (rc == MR_OK)
            rc = mr__image_decode(&d, &info, part, n, pixels, &st);
        mr_code_is(rc, MR_INVALID_ARGUMENT, &st);
    }
    for (size_t n = 8; n < s.size - 4; n++) {
        mr_test_context("byte %zu", n);
        memcpy(part, s.data, s.size);
        part[n] ^= 0x10;
        mr_code rc = mr__image_header(&d, MR__IMAGE_PNG, part, s.size, 0, &info, &st);
        if (rc == MR_OK)
            rc = mr__image_decode(&d, &info, part, s.size, pixels, &st);
        mr_code_is(rc, MR_INVALID_ARGUMENT, &st);
    }
    free(part);
    free((void *)(uintptr_t)s.data);
}

MR_TEST(a_huge_image_is_refused_before_there_is_memory_for_it)
{
    /* A header of 40,000 x 40,000 pixels. */
    static const char header[] =
        "\x89PNG\r\n\x1A\n\0\0\0\rIHDR\0\0\x9C\x40\0\0\x9C\x40\x08\x02\0\0\0";
    unsigned char all[64];
    size_t n = sizeof header - 1;
    memcpy(all, header, n);
    uint32_t crc = (uint32_t)crc32(0, all + 12, 17);
    for (int i = 0; i < 4; i++)
        all[n++] = (unsigned char)(crc >> (24 - 8 * i));
    memcpy(all + n, "\0\0\0\0IDAT\x35\xAF\x06\x1E", 12);
    mr__image_decoder d = {0};
    mr__image_info info;
    mr_status st;
    mr_code_is(mr__image_header(&d, MR__IMAGE_ANY, all, n + 12, 0, &info, &st), MR_INVALID_ARGUMENT,
               &st);
    mr_has_str(st.message, "an image of 40000 x 40000 pixels is larger than 512 MiB");
}
