// SPDX-License-Identifier: Apache-2.0
// pipeline/cpp/objects.hpp: datasets, iterators, blocks, columns, errors.
#include "kit.hpp"
#include <thread>
#if __cplusplus >= 202002L
#include <span>
#endif

using kit::error_of;
using kit::numbers;
using kit::rest_of;
using millrace::block;
using millrace::dataset;
using millrace::iterator;

template <class T>
constexpr bool only_moves =
    !std::is_copy_constructible_v<T> && !std::is_copy_assignable_v<T> &&
    std::is_nothrow_move_constructible_v<T> && std::is_nothrow_move_assignable_v<T> &&
    std::is_nothrow_default_constructible_v<T>;
static_assert(only_moves<dataset> && only_moves<iterator> && only_moves<block>);
static_assert(std::is_nothrow_copy_constructible_v<millrace::error>);

static mr_iterator_opts positions()
{
    mr_iterator_opts opts{};
    opts.positions = true;
    return opts;
}

TEST(a_chain_of_constructors_is_iterated)
{
    dataset ds(mr_batch(mr_range(0, 10, 1), 4, nullptr));
    iterator it(ds);
    std::vector<std::size_t> sizes;
    std::int64_t sum = 0;
    for (const block &b : it.blocks())
        for (std::size_t i = 0; i < b.rows(); i++) {
            auto row = b.column(0).row<std::int64_t>(i);
            sizes.push_back(row.size());
            for (std::int64_t x : row)
                sum += x;
        }
    EXPECT(sizes == std::vector<std::size_t>{4, 4, 2});
    EXPECT(sum == 45);
    block b;
    EXPECT(!it.next(b)); // the end is sticky
    EXPECT(b.rows() == 0);
}

TEST(a_shared_dataset_stays_and_a_released_one_is_empty)
{
    dataset ds(mr_range(0, 5, 1));
    dataset two(mr_take(ds.share().release(), 2));
    dataset moved = std::move(ds);
    EXPECT(!ds && moved); // NOLINT: the state after a move is what is tested
    dataset three(mr_skip(moved.release(), 2));
    EXPECT(!moved && moved.get() == nullptr);
    iterator a(two), b(three);
    EXPECT(rest_of(a) == numbers{0, 1});
    EXPECT(rest_of(b) == numbers{2, 3, 4});
    dataset nothing;
    EXPECT(!nothing && !nothing.share());
    two = std::move(three);
    EXPECT(two.cardinality() == 3);
}

TEST(text_and_protobuf_are_read_and_written)
{
    dataset ds = dataset::from_text("range(7).batch(3)");
    EXPECT(ds.text() == "range(7).batch(3)");
    EXPECT(ds.cardinality() == 3);
    EXPECT(mr_spec_n_leaves(ds.spec()) == 1);
    millrace::bytes proto = ds.proto();
    EXPECT(dataset::from_proto(proto.data(), proto.size()).text() == ds.text());
    EXPECT(dataset::from_text("range(3).repeat()").cardinality() == MR_INFINITE);
    dataset three(mr_range(0, 3, 1));
    const char *name = "three";
    mr_value value{};
    value.kind = MR_V_DATASET;
    value.dataset = three.get();
    mr_env env{};
    env.names = &name;
    env.values = &value;
    env.n = 1;
    iterator it(dataset::from_text("three.concatenate(three)", &env));
    EXPECT(rest_of(it) == numbers{0, 1, 2, 0, 1, 2});
}

TEST(errors_have_code_message_and_place)
{
    millrace::error e = error_of([] { dataset::from_text("range(3).btch(2)"); });
    EXPECT(e.code() == MR_INVALID_ARGUMENT);
    EXPECT(std::strstr(e.message(), "did you mean 'batch'"));
    EXPECT(std::string(e.what()).find("invalid argument: line 1, column 10") == 0);
    EXPECT(e.status().offset == 9);
    millrace::error copy = e;
    EXPECT(std::string(copy.what()) == e.what());

    dataset wrong(mr_batch(mr_range(0, 3, 1), 0, nullptr)); // carries it until it is used
    EXPECT(error_of([&] { wrong.check(); }).code() == MR_INVALID_ARGUMENT);
    EXPECT(error_of([&] { (void)wrong.cardinality(); }).code() == MR_INVALID_ARGUMENT);
    EXPECT(error_of([&] { (void)wrong.spec(); }).code() == MR_INVALID_ARGUMENT);
    EXPECT(error_of([&] { (void)wrong.text(); }).code() == MR_INVALID_ARGUMENT);
    EXPECT(error_of([&] { (void)wrong.proto(); }).code() == MR_INVALID_ARGUMENT);
    EXPECT(error_of([&] { iterator it(wrong); }).code() == MR_INVALID_ARGUMENT);
    EXPECT(error_of([] { dataset::from_proto("x", 1); }).code() == MR_INVALID_ARGUMENT);
}

TEST(an_error_is_thrown_once_in_its_place)
{
    const dataset ds = dataset::from_text("range(4).map(x => 6 // (x - 2))");
    iterator it(ds), other(ds);
    block b;
    numbers seen;
    int errors = 0;
    for (bool more = true; more;) {
        try {
            more = it.next(b, 4);
            for (std::size_t i = 0; more && i < b.rows(); i++)
                seen.push_back(b.column(0).value<std::int64_t>(i));
        } catch (const millrace::error &e) {
            EXPECT(e.code() == MR_INVALID_ARGUMENT);
            EXPECT(e.status().element == 2);
            EXPECT(seen.size() == 2);
            errors++;
        }
    }
    EXPECT(errors == 1);
    EXPECT(seen == numbers{-3, -6, 6});
    try {
        for (const block &each : other.blocks(4))
            (void)each;
        EXPECT(false);
    } catch (const millrace::error &e) {
        EXPECT(e.status().element == 2);
    }
}

TEST(a_status_throws_what_functions_of_c_report)
{
    millrace::status st;
    EXPECT(st->code == MR_OK);
    EXPECT(st.check(MR_OK) == MR_OK && st.check(MR_END) == MR_END);
    millrace::error e = error_of([&] { st.check(mr_plugin_load("./none.so", st.get())); });
    EXPECT(e.code() == MR_NOT_FOUND && st->code == MR_NOT_FOUND);
}

TEST(positions_continue_in_another_iterator)
{
    dataset ds = dataset::from_text("range(20)");
    iterator whole(ds);
    const numbers all = rest_of(whole);
    iterator it(ds, positions());
    block b;
    EXPECT(it.next(b, 4) && b.rows() == 4);
    millrace::bytes after_4 = it.save(), after_2 = it.save_at(b, 2);
    iterator later(dataset::from_text(ds.text()));
    later.restore(after_4);
    EXPECT(rest_of(later) == numbers(all.begin() + 4, all.end()));
    later.restore(after_2.data(), after_2.size());
    EXPECT(rest_of(later) == numbers(all.begin() + 2, all.end()));
    EXPECT(error_of([&] { later.restore("x", 1); }).code() == MR_INVALID_ARGUMENT);
    iterator without(ds);
    EXPECT(error_of([&] { without.save(); }).code() == MR_FAILED_PRECONDITION);
}

TEST(passes_rest_and_begin_again)
{
    iterator it(dataset(mr_range(0, 4, 1)), positions());
    EXPECT(rest_of(it) == numbers{0, 1, 2, 3});
    it.rewind();
    block b;
    EXPECT(it.next(b, 3));
    it.rest();
    EXPECT(error_of([&] { it.next(b); }).code() == MR_FAILED_PRECONDITION);
    it.rewind();
    EXPECT(rest_of(it) == numbers{0, 1, 2, 3});
    EXPECT(mr_spec_leaf(it.spec(), 0)->dtype == MR_INT64);
}

TEST(another_thread_cancels)
{
    iterator it(dataset::from_text("range(1).repeat().filter(x => x > 0)"));
    block b;
    std::thread canceller([&] { it.cancel(); });
    EXPECT(error_of([&] { it.next(b); }).code() == MR_CANCELLED);
    canceller.join();
}

TEST(a_block_outlives_iterator_and_dataset)
{
    block b;
    {
        iterator it(dataset::from_text("from_tensor_slices({\"name\": [\"n0\", \"n1\", \"n2\"], "
                                       "\"half\": cast([0, 0.5, 1], \"float64\")})"));
        EXPECT(it.next(b, 3) && b.rows() == 3);
    }
    EXPECT(b.columns() == 2);
    EXPECT(b.name(0) == "half" && b.name(1) == "name" && b.name(2).empty());
    EXPECT(b.column("name").string(2) == "n2");
    EXPECT(b.column(std::string("half")).value<double>(1) == 0.5);
    block moved = std::move(b);
    EXPECT(b.rows() == 0 && b.columns() == 0 && b.name(0).empty()); // NOLINT
    EXPECT(moved.column("name").string(0) == "n0");
    block &same = moved;
    moved = std::move(same);
    EXPECT(moved.rows() == 3);
    b = std::move(moved);
    EXPECT(b.column("half").all<double>()[2] == 1.0);
    iterator other(dataset(mr_range(0, 2, 1)));
    EXPECT(other.next(b) && b.columns() == 1 && b.name(0).empty());
}

TEST(columns_check_types_and_places)
{
    iterator it(
        dataset::from_text("from_tensors((cast([[1, 2], [3, 4], [5, 6]], \"float32\"), true))"));
    block b;
    EXPECT(it.next(b));
    millrace::column x = b.column(0);
    EXPECT(x.dtype() == MR_FLOAT32 && x.rows() == 1 && x.get().rank == 2);
    auto shape = x.shape();
    EXPECT(shape.size() == 2 && shape[0] == 3 && shape[1] == 2);
    EXPECT(x.all<float>().size() == 6 && x.row<float>(0)[5] == 6.0f);
    EXPECT(b.column("1").value<bool>(0));
    millrace::error e = error_of([&] { (void)x.all<std::int64_t>(); });
    EXPECT(e.code() == MR_INVALID_ARGUMENT);
    EXPECT(std::string(e.message()) == "the column is of float32, not of int64");
    EXPECT(error_of([&] { (void)x.string(0); }).code() == MR_INVALID_ARGUMENT);
    auto out_of_range = [](auto work) {
        try {
            work();
        } catch (const std::out_of_range &) {
            return true;
        }
        return false;
    };
    EXPECT(out_of_range([&] { (void)x.row<float>(1); }));
    EXPECT(out_of_range([&] { (void)b.column(2); }));
    EXPECT(out_of_range([&] { (void)b.column("none"); }));
    EXPECT(out_of_range([&] { (void)block().column(0); }));
    iterator none(dataset::from_text("from_tensors(cast([], \"int64\"))"));
    EXPECT(none.next(b) && b.column(0).all<std::int64_t>().empty());
    EXPECT(out_of_range([&] { (void)b.column(0).value<std::int64_t>(0); }));
#if __cplusplus >= 202002L
    iterator again(dataset(mr_range(0, 4, 1)));
    EXPECT(again.next(b, 4));
    std::span<const std::int64_t> span = b.column(0).all<std::int64_t>();
    EXPECT(span.size() == b.rows() && span[0] == 0);
#endif
}

TEST(rows_may_differ_in_shape)
{
    iterator it(dataset::from_text("range(1, 4).map(x => ones([x], dtype=\"int64\"))"
                                   ".ragged_batch(2)"));
    block b;
    std::vector<std::size_t> sizes;
    while (it.next(b, 4))
        for (std::size_t i = 0; i < b.rows(); i++)
            sizes.push_back(b.column(0).row<std::int64_t>(i).size());
    EXPECT(sizes == std::vector<std::size_t>{3, 3});

    iterator ragged(dataset::from_text("range(1, 4).map(x => ones([x], dtype=\"int64\"))"));
    numbers seen, lengths;
    while (ragged.next(b, 4))
        for (std::size_t i = 0; i < b.rows(); i++) {
            lengths.push_back(b.column(0).shape(i)[0]);
            for (std::int64_t x : b.column(0).row<std::int64_t>(i))
                seen.push_back(x);
        }
    EXPECT(lengths == numbers{1, 2, 3});
    EXPECT(seen == numbers{1, 1, 1, 1, 1, 1});
}

TEST(dtypes_follow_from_types)
{
    static_assert(millrace::dtype_of<bool>() == MR_BOOL);
    static_assert(millrace::dtype_of<std::int8_t>() == MR_INT8);
    static_assert(millrace::dtype_of<std::uint16_t>() == MR_UINT16);
    static_assert(millrace::dtype_of<std::int32_t>() == MR_INT32);
    static_assert(millrace::dtype_of<long>() == MR_INT64);
    static_assert(millrace::dtype_of<long long>() == MR_INT64);
    static_assert(millrace::dtype_of<unsigned long long>() == MR_UINT64);
    static_assert(millrace::dtype_of<float>() == MR_FLOAT32);
    static_assert(millrace::dtype_of<double>() == MR_FLOAT64);
    static_assert(millrace::dtype_of<mr_bytes>() == MR_STRING);
}

int main()
{
    return kit::run("objects");
}
