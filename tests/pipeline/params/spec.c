/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/params/spec.h"

#include <string.h>

#include "pipeline/params/infer.h"
#include "tests/fault.h"
#include "tests/harness.h"

MR_ONE_THREAD;

static mr_spec *image_and_label(int64_t side)
{
    const char *names[] = {"label", "image"};
    mr_spec *kids[] = {mr_spec_scalar(MR_INT64),
                       mr_spec_tensor(MR_UINT8, 2, (int64_t[]){side, 28})};
    return mr_spec_record(names, kids, 2);
}

static mr_spec *nested(int64_t side)
{
    mr_spec *kids[] = {mr_spec_scalar(MR_FLOAT32), image_and_label(side),
                       mr_spec_dataset(mr_spec_scalar(MR_STRING))};
    return mr_spec_tuple(kids, 3);
}

static const char *formatted(const mr_spec *s)
{
    static char buf[200];
    mr_check(mr_spec_format(s, buf, sizeof buf) < sizeof buf);
    return buf;
}

MR_TEST(tuple_of_one_is_its_component)
{
    mr_spec *one = mr_spec_scalar(MR_INT8);
    mr_spec *s = mr_spec_tuple(&one, 1);
    mr_check(s == one);
    mr_eq_str(formatted(s), "int8[]");
    mr_spec_unref(s);
}

MR_TEST(record_orders_components_by_name)
{
    mr_spec *s = image_and_label(28);
    mr_eq_str(formatted(s), "{image: uint8[28, 28], label: int64[]}");
    mr_eq_i64(mr_spec_find(s, "label"), 1);
    mr_eq_i64(mr_spec_find(s, "image"), 0);
    mr_eq_i64(mr_spec_find(s, "none"), -1);
    mr_spec_unref(s);
}

MR_TEST(leaves_are_found_depth_first_with_their_paths)
{
    mr_spec *s = nested(28);
    static const char *const paths[] = {"0", "1/image", "1/label", "2"};
    static const mr_dtype types[] = {MR_FLOAT32, MR_UINT8, MR_INT64, MR_DATASET};
    mr_eq_u64(mr_spec_n_leaves(s), 4);
    for (size_t i = 0; i < 4; i++) {
        mr_eq_str(mr_spec_leaf_names(s)[i], paths[i]);
        mr_eq_i64(mr_spec_leaf(s, i)->dtype, types[i]);
    }
    mr_eq_u64(mr_spec_first_leaf(s, 2), 3);
    mr_eq_str(formatted(s),
              "(float32[], {image: uint8[28, 28], label: int64[]}, dataset(string[]))");
    mr_spec_unref(s);
}

MR_TEST(open_dimensions_cover_known_ones)
{
    mr_spec *known = nested(28), *open = nested(-1), *any = mr_spec_tensor(MR_FLOAT32, -1, NULL),
            *one = mr_spec_tensor(MR_FLOAT32, 1, (int64_t[]){3}), *out = NULL;
    mr_status st;
    mr_check(mr__spec_covers(open, known) && mr__spec_covers(known, known));
    mr_check(!mr__spec_covers(known, open) && !mr__spec_covers(any, known));
    mr_check(mr__spec_covers(any, one) && !mr__spec_covers(one, any));
    size_t n = mr__spec_shapes_count(open);
    int64_t numbers[16];
    mr_check(n < 16 && mr__spec_shapes(open, numbers) == numbers + n);
    const int64_t *at = numbers;
    mr_ok(mr__spec_with_shapes(known, &at, &n, &out, &st), &st);
    mr_check(n == 0 && mr_spec_equal(out, open));
    mr_spec_unref(known);
    mr_spec_unref(open);
    mr_spec_unref(any);
    mr_spec_unref(one);
    mr_spec_unref(out);
}

MR_TEST(empty_tuples_have_no_leaves_and_hide_none)
{
    mr_spec *kids[] = {mr_spec_tuple(NULL, 0), mr_spec_scalar(MR_INT64), mr_spec_tuple(NULL, 0)};
    mr_spec *s = mr_spec_tuple(kids, 3);
    mr_eq_u64(mr_spec_n_leaves(s), 1);
    mr_eq_i64(mr_spec_leaf(s, 0)->dtype, MR_INT64);
    mr_eq_str(mr_spec_leaf_names(s)[0], "1");
    mr_spec_unref(s);
}

MR_TEST(merging_forgets_what_differs)
{
    mr_spec *a = nested(28), *b = nested(32);
    mr_check(mr_spec_same_types(a, b));
    mr_check(!mr_spec_equal(a, b));
    mr_spec *m = mr_spec_merge(a, b);
    mr_eq_str(formatted(m),
              "(float32[], {image: uint8[?, 28], label: int64[]}, dataset(string[]))");
    mr_spec_unref(a);
    mr_spec_unref(b);
    mr_spec_unref(m);
    a = mr_spec_tensor(MR_INT8, 1, (int64_t[]){3});
    b = mr_spec_tensor(MR_INT8, 2, (int64_t[]){3, 3});
    m = mr_spec_merge(a, b);
    mr_eq_str(formatted(m), "int8[...]");
    mr_check(mr_leaf_admits(mr_spec_leaf(m, 0), 5, (int64_t[]){1, 2, 3, 4, 5}));
    mr_check(!mr_leaf_admits(mr_spec_leaf(a, 0), 1, (int64_t[]){4}));
    mr_spec_unref(a);
    mr_spec_unref(b);
    mr_spec_unref(m);
}

MR_TEST(with_leaves_keeps_the_tree)
{
    mr_spec *s = nested(28);
    mr_leaf leaves[4];
    for (size_t i = 0; i < 4; i++) {
        leaves[i] = *mr_spec_leaf(s, i);
        leaves[i].rank++;
        memmove(leaves[i].shape + 1, leaves[i].shape, 7 * sizeof *leaves[i].shape);
        leaves[i].shape[0] = -1;
    }
    mr_spec *t = mr_spec_with_leaves(s, leaves);
    mr_eq_str(formatted(t),
              "(float32[?], {image: uint8[?, 28, 28], label: int64[?]}, dataset(string[]))");
    mr_spec_unref(s);
    mr_spec_unref(t);
}

MR_TEST(format_cuts_and_tells_the_length)
{
    char buf[8];
    mr_spec *s = nested(28);
    mr_eq_u64(mr_spec_format(s, buf, sizeof buf), strlen(formatted(s)));
    mr_eq_str(buf, "(float3");
    mr_spec_unref(s);
}

MR_TEST(every_failed_allocation_is_null)
{
    mr_fault_each_allocation(n)
    {
        mr_spec *s = nested(28);
        mr_spec *t = s ? mr_spec_merge(s, s) : NULL;
        const char *const *paths = s ? mr_spec_leaf_names(s) : NULL;
        mr_check(mr_fault_seen() || (t && paths));
        mr_spec_unref(s);
        mr_spec_unref(t);
    }
}
