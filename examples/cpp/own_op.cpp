// SPDX-License-Identifier: Apache-2.0
// A shared object for `millrace --load` with a custom op and a custom function, in C++17.
//
//     range(10).recent(3)                           [0] [0, 1] [0, 1, 2] [1, 2, 3] ...
//     range(3).map(x => scaled(x / 1, by=2.5))      0 2.5 5
//
// The same in C: examples/own_op/own_op.c.
#include <millrace/millrace.hpp>
#include <deque>

namespace
{

// ---- recent(n): with each element, those before it, n in all ----

struct recent_params {
    std::int64_t n;
};

// A class: the library constructs and destroys it. What it throws becomes the error of the element.
struct recent_state {
    std::deque<std::int64_t> window;
};

mr_code infer(const mr_dataset *self, const void *, mr_spec **out, mr_status *st)
{
    const mr_spec *in = mr_dataset_spec(mr_dataset_input(self, 0));
    const mr_leaf *leaf = mr_spec_n_leaves(in) == 1 ? mr_spec_leaf(in, 0) : nullptr;
    if (!leaf || leaf->dtype != MR_INT64 || leaf->rank != 0)
        return mr_fail(st, MR_INVALID_ARGUMENT, "recent expects int64 scalars");
    const std::int64_t any = -1;
    *out = mr_spec_tensor(MR_INT64, 1, &any);
    return *out ? MR_OK : mr_fail_memory(st, 0, "a spec");
}

mr_code next(mr_iter *it, std::size_t, mr_block *out, mr_status *st)
{
    const auto &p = millrace::params_of<recent_params>(it);
    auto &window = millrace::state_of<recent_state>(it).window;
    millrace::block in;
    MR_TRY(mr_iter_pull(it, 0, 1, in.get(), st));
    window.push_back(in.column(0).value<std::int64_t>(0));
    if (window.size() > static_cast<std::size_t>(p.n))
        window.pop_front();
    const auto n = static_cast<std::int64_t>(window.size());
    MR_TRY(mr_block_prepare(out, 1, st));
    MR_TRY(mr_array_alloc(&out->columns[0], MR_INT64, 1, &n, 1, st));
    std::copy(window.begin(), window.end(), static_cast<std::int64_t *>(out->columns[0].data));
    out->rows = 1;
    return MR_OK;
}

mr_code save(mr_iter *it, mr_state_w *w, mr_status *st)
{
    const auto &window = millrace::state_of<recent_state>(it).window;
    MR_TRY(mr_state_put_u64(w, window.size(), st));
    for (std::int64_t x : window)
        MR_TRY(mr_state_put_u64(w, static_cast<std::uint64_t>(x), st));
    return mr_iter_save_input(it, 0, w, st);
}

// Positions are untrusted: each number is checked.
mr_code restore(mr_iter *it, mr_state_r *r, mr_status *st)
{
    const auto &p = millrace::params_of<recent_params>(it);
    auto &window = millrace::state_of<recent_state>(it).window;
    std::uint64_t n = 0, x = 0;
    MR_TRY(mr_state_get_u64(r, &n, st));
    if (n > static_cast<std::uint64_t>(p.n))
        return mr_state_damaged(st, "the window has more elements than it may");
    for (window.clear(); n > 0; n--) {
        MR_TRY(mr_state_get_u64(r, &x, st));
        window.push_back(static_cast<std::int64_t>(x));
    }
    MR_TRY(mr_iter_restore_input(it, 0, r, st));
    return it->inputs[0] ? MR_OK : mr_state_damaged(st, "an input is not open");
}

constexpr mr_param recent_table[] = {
    MR_ARG(recent_params, n).range(1, 1 << 20).doc("Number of elements, this one included."), {}};

constexpr mr_op recent = millrace::op<recent_params, recent_state>(
                             "recent", "Each element with those before it, n in all.")
                             .example("range(5).recent(3)")
                             .state_doc("the window")
                             .table(recent_table)
                             .inputs(1)
                             .role(MR_ROLE_BARRIER) // an element depends on those before it
                             .props(MR_OP_KEEPS_COUNT)
                             .infer<infer>()
                             .next<next>()
                             .save<save>()
                             .restore<restore>();

// ---- scaled(x, by): a product with a constant ----

struct scaled_options {
    double by;
};

mr_code scaled_type(mr_call *c, mr_status *st)
{
    if (c->in[0]->dtype != MR_FLOAT64)
        return mr_call_fail(c, st, 0, "scaled expects float64, not %s",
                            mr_dtype_name(c->in[0]->dtype));
    c->out = *c->in[0];
    return MR_OK;
}

mr_code scaled_run(const mr_rows *r, mr_array *out, mr_status *st)
{
    const double by = static_cast<const scaled_options *>(r->params)->by;
    const mr_array &in = r->in[0];
    MR_TRY(mr_array_alloc(out, MR_FLOAT64, in.rank, in.shape, r->rows, st));
    auto *y = static_cast<double *>(out->data);
    for (double x : millrace::column(in).all<double>())
        *y++ = x * by;
    return MR_OK;
}

constexpr mr_param scaled_table[] = {MR_INPUT(mr_input_numbers, "x", "A float64 tensor."),
                                     MR_PARAM(scaled_options, by).def(1.0).doc("The factor."),
                                     {}};

constexpr mr_function scaled = millrace::function<scaled_options>("scaled", "A multiple of x.")
                                   .example("range(3).map(x => scaled(x / 1, by=2.5))")
                                   .table(scaled_table)
                                   .type<scaled_type>()
                                   .run<scaled_run>();

} // namespace

extern "C" mr_code mr_plugin_register(mr_status *st)
{
    MR_TRY(mr_op_register(&recent, st));
    return mr_function_register(&scaled, st);
}
