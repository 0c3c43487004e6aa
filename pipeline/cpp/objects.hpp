/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_CPP_OBJECTS_HPP
#define MR_PIPELINE_CPP_OBJECTS_HPP
/* C++17 owners of the library's objects. A dataset, an iterator and a block are released when they
 * go out of scope; they can be moved, not copied. Every failed call throws millrace::error.
 *
 *     millrace::dataset ds(mr_batch(mr_range(0, 100, 1), 32, nullptr));
 *     millrace::iterator it(ds);
 *     millrace::block b;
 *     while (it.next(b))
 *         for (std::int64_t x : b.column(0).all<std::int64_t>())
 *             sum += x;
 *
 * Datasets are built with the constructors of C, which take over the inputs passed to them:
 * release() passes a dataset and leaves it empty, share() keeps it. get() returns the object of C
 * for all other functions; status::check throws what they fail with.
 *
 *     millrace::status st;
 *     millrace::dataset first(mr_take(ds.share().release(), 2));
 *     st.check(mr_iterator_rewind(it.get(), st.get()));
 *
 * An object that was moved from, or made without arguments, is empty: it may only be assigned to,
 * tested and destroyed. The exception is a block, which is then a block without rows.
 *
 * thread   one at a time per object; iterator::cancel from any
 * since    0.2 */
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>
#include "../engine/iterator.h"
#include "../memory/alloc.h"

namespace millrace
{

/* What a failed call throws. what() is the error with its place, as the program `millrace` prints
 * it; status() has the parts. */
class error : public std::runtime_error
{
  public:
    explicit error(const mr_status &st) : std::runtime_error(text(st)), status_(st)
    {
    }
    mr_code code() const noexcept
    {
        return status_.code;
    }
    const char *message() const noexcept // without the place
    {
        return status_.message;
    }
    const mr_status &status() const noexcept
    {
        return status_;
    }

  private:
    static std::string text(const mr_status &st)
    {
        std::string s(mr_status_format(&st, nullptr, 0), '\0');
        mr_status_format(&st, s.data(), s.size() + 1);
        return s;
    }
    mr_status status_;
};

/* A status for calls of C functions. */
class status
{
  public:
    status() noexcept
    {
        mr_status_init(&status_);
    }
    mr_status *get() noexcept
    {
        return &status_;
    }
    const mr_status *operator->() const noexcept
    {
        return &status_;
    }
    /* Returns rc, which is MR_OK or MR_END, and throws the error otherwise. */
    mr_code check(mr_code rc) const
    {
        if (rc < 0)
            throw error(status_);
        return rc;
    }

  private:
    mr_status status_;
};

/* Frees what C functions return as owned. */
struct deleter {
    void operator()(void *memory) const noexcept
    {
        mr_free(memory);
    }
    void operator()(mr_dataset *ds) const noexcept
    {
        mr_dataset_unref(ds);
    }
    void operator()(mr_iterator *it) const noexcept
    {
        mr_iterator_close(it);
    }
    void operator()(const mr_spec *spec) const noexcept
    {
        mr_spec_unref(spec);
    }
};

using bytes = std::vector<std::byte>; /* positions and graphs in protobuf */

/* ---- datasets ---- */

class dataset
{
  public:
    dataset() noexcept = default;
    /* Takes over a reference: what a constructor of C returned. An error that the dataset carries
     * is thrown when it is used. */
    explicit dataset(mr_dataset *owned) noexcept : p_(owned)
    {
    }
    static dataset from_text(std::string_view text, const mr_env *env = nullptr)
    {
        status st;
        mr_dataset *ds = nullptr;
        st.check(mr_dataset_from_text(text.data(), text.size(), env, &ds, st.get()));
        return dataset(ds);
    }
    static dataset from_proto(const void *data, std::size_t size)
    {
        status st;
        mr_dataset *ds = nullptr;
        st.check(mr_dataset_from_proto(data, size, &ds, st.get()));
        return dataset(ds);
    }

    dataset share() const noexcept /* the same dataset, with another reference */
    {
        return dataset(p_ ? mr_dataset_ref(p_.get()) : nullptr);
    }
    mr_dataset *release() noexcept /* gives the reference away */
    {
        return p_.release();
    }
    mr_dataset *get() const noexcept /* borrowed */
    {
        return p_.get();
    }
    explicit operator bool() const noexcept
    {
        return p_ != nullptr;
    }

    void check() const /* throws the error that it carries */
    {
        status st;
        st.check(mr_dataset_check(p_.get(), st.get()));
    }
    const mr_spec *spec() const /* borrowed */
    {
        check();
        return mr_dataset_spec(p_.get());
    }
    /* Number of elements, MR_INFINITE or MR_UNKNOWN_COUNT. */
    std::int64_t cardinality() const
    {
        check();
        return mr_dataset_cardinality(p_.get());
    }
    std::string text() const
    {
        status st;
        char *text = nullptr;
        st.check(mr_dataset_to_text(p_.get(), &text, st.get()));
        std::unique_ptr<char, deleter> owned(text);
        return std::string(text);
    }
    bytes proto() const
    {
        status st;
        void *data = nullptr;
        std::size_t size = 0;
        st.check(mr_dataset_to_proto(p_.get(), &data, &size, st.get()));
        std::unique_ptr<void, deleter> owned(data);
        const std::byte *first = static_cast<const std::byte *>(data);
        return bytes(first, first + size);
    }

  private:
    std::unique_ptr<mr_dataset, deleter> p_;
};

/* ---- blocks ---- */

/* The dtype with the values of T: bool, integers, float, double, and mr_bytes for strings. */
template <class T> constexpr mr_dtype dtype_of() noexcept
{
    static_assert(std::is_arithmetic_v<T> || std::is_same_v<T, mr_bytes>,
                  "bool, an integer, float, double or mr_bytes");
    static_assert(sizeof(T) <= sizeof(mr_bytes) && !std::is_same_v<T, long double>);
    if constexpr (std::is_same_v<T, bool>)
        return MR_BOOL;
    else if constexpr (std::is_same_v<T, mr_bytes>)
        return MR_STRING;
    else if constexpr (std::is_floating_point_v<T>)
        return sizeof(T) == 4 ? MR_FLOAT32 : MR_FLOAT64;
    else if constexpr (std::is_signed_v<T>)
        return sizeof(T) == 1   ? MR_INT8
               : sizeof(T) == 2 ? MR_INT16
               : sizeof(T) == 4 ? MR_INT32
                                : MR_INT64;
    else
        return sizeof(T) == 1   ? MR_UINT8
               : sizeof(T) == 2 ? MR_UINT16
               : sizeof(T) == 4 ? MR_UINT32
                                : MR_UINT64;
}

/* Contiguous values, borrowed; converts to std::span<const T> in C++20. */
template <class T> class values
{
  public:
    constexpr values() noexcept = default;
    constexpr values(const T *data, std::size_t size) noexcept : data_(data), size_(size)
    {
    }
    constexpr const T *data() const noexcept
    {
        return data_;
    }
    constexpr std::size_t size() const noexcept
    {
        return size_;
    }
    constexpr bool empty() const noexcept
    {
        return size_ == 0;
    }
    constexpr const T *begin() const noexcept
    {
        return data_;
    }
    constexpr const T *end() const noexcept
    {
        return data_ + size_;
    }
    constexpr const T &operator[](std::size_t i) const noexcept
    {
        return data_[i];
    }

  private:
    const T *data_ = nullptr;
    std::size_t size_ = 0;
};

/* A view of one column, valid as long as its block has these rows. A wrong T throws error with
 * MR_INVALID_ARGUMENT, a row that is not there std::out_of_range. float16 and bfloat16 have no type
 * in C++17: read them through get(). */
class column
{
  public:
    explicit column(const mr_array &a) noexcept : a_(&a)
    {
    }
    const mr_array &get() const noexcept
    {
        return *a_;
    }
    mr_dtype dtype() const noexcept
    {
        return a_->dtype;
    }
    std::size_t rows() const noexcept
    {
        return a_->rows;
    }
    values<std::int64_t> shape(std::size_t row = 0) const
    {
        if (a_->storage != MR_RAGGED)
            return {a_->shape, static_cast<std::size_t>(a_->rank)};
        require_row(row);
        return {mr_array_row_shape(a_, row), static_cast<std::size_t>(a_->rank)};
    }
    /* The values of all rows. Rows that may differ in shape have no such array: see row(). */
    template <class T> values<T> all() const
    {
        require(dtype_of<T>(), a_->storage == MR_DENSE || a_->storage == MR_BYTES);
        return {static_cast<const T *>(a_->data), a_->rows * mr_array_row_values(a_)};
    }
    /* The values of one row. */
    template <class T> values<T> row(std::size_t i) const
    {
        require(dtype_of<T>(), a_->storage != MR_PLACED);
        require_row(i);
        if (a_->storage == MR_RAGGED) {
            const mr_row &r = static_cast<const mr_row *>(a_->data)[i];
            return {static_cast<const T *>(r.data), values_of(r)};
        }
        return {static_cast<const T *>(mr_array_at(a_, i)), mr_array_row_values(a_)};
    }
    /* The first value of a row: that of a scalar. */
    template <class T> T value(std::size_t i) const
    {
        values<T> v = row<T>(i);
        if (v.empty())
            throw std::out_of_range("a row without values");
        return v[0];
    }
    std::string_view string(std::size_t i) const
    {
        mr_bytes s = value<mr_bytes>(i);
        return s.size ? std::string_view(s.data, s.size) : std::string_view();
    }

  private:
    std::size_t values_of(const mr_row &r) const noexcept
    {
        std::size_t n = r.splits ? static_cast<std::size_t>(r.splits[r.shape[0]]) : 1;
        for (int k = r.splits ? 2 : 0; k < a_->rank; k++)
            n *= static_cast<std::size_t>(r.shape[k]);
        return n;
    }
    void require(mr_dtype t, bool storage_fits) const
    {
        status st;
        if (a_->dtype != t)
            st.check(mr_fail(st.get(), MR_INVALID_ARGUMENT, "the column is of %s, not of %s",
                             mr_dtype_name(a_->dtype), mr_dtype_name(t)));
        if (!storage_fits)
            st.check(mr_fail(st.get(), MR_INVALID_ARGUMENT,
                             "the rows of the column are not in one "
                             "array"));
    }
    void require_row(std::size_t i) const
    {
        if (i >= a_->rows)
            throw std::out_of_range("row " + std::to_string(i) + " of a column of " +
                                    std::to_string(a_->rows) + " rows");
    }
    const mr_array *a_;
};

class block
{
  public:
    block() noexcept = default;
    block(block &&other) noexcept
        : b_(std::exchange(other.b_, mr_block())), spec_(std::move(other.spec_))
    {
    }
    block &operator=(block &&other) noexcept
    {
        if (this != &other) {
            mr_block_reset(&b_);
            b_ = std::exchange(other.b_, mr_block());
            spec_ = std::move(other.spec_);
        }
        return *this;
    }
    ~block()
    {
        mr_block_reset(&b_);
    }

    std::size_t rows() const noexcept
    {
        return b_.rows;
    }
    std::size_t columns() const noexcept
    {
        return b_.n_columns;
    }
    millrace::column column(std::size_t i) const
    {
        if (i >= b_.n_columns)
            throw std::out_of_range("column " + std::to_string(i) + " of a block of " +
                                    std::to_string(b_.n_columns));
        return millrace::column(b_.columns[i]);
    }
    /* By its path: "label", "0/image". */
    millrace::column column(std::string_view path) const
    {
        for (std::size_t i = 0; i < b_.n_columns && b_.names; i++)
            if (path == b_.names[i])
                return millrace::column(b_.columns[i]);
        throw std::out_of_range("the block has no column \"" + std::string(path) + "\"");
    }
    std::string_view name(std::size_t i) const noexcept /* "" without names */
    {
        return b_.names && i < b_.n_columns ? b_.names[i] : std::string_view();
    }
    mr_block *get() noexcept
    {
        return &b_;
    }
    const mr_block *get() const noexcept
    {
        return &b_;
    }

  private:
    friend class iterator;
    mr_block b_ = MR_BLOCK_EMPTY;
    std::unique_ptr<const mr_spec, deleter> spec_; /* has the names, also after the iterator */
};

/* ---- iterators ---- */

class iterator
{
  public:
    iterator() noexcept = default;
    /* mr_iterator_opts opts{}; opts.positions = true; ... */
    explicit iterator(const dataset &ds, const mr_iterator_opts &opts = mr_iterator_opts())
    {
        status st;
        mr_iterator *it = nullptr;
        st.check(mr_iterator_open(&it, ds.get(), &opts, st.get()));
        p_.reset(it);
    }

    /* Up to `want` next elements into b. Returns false at the end. An error is thrown once; where
     * the op can, the next call continues after it. */
    bool next(block &b, std::size_t want = 1)
    {
        mr_status st;
        mr_code rc = mr_iterator_next(p_.get(), want, &b.b_, &st);
        if (rc < 0)
            throw error(st);
        const mr_spec *spec = mr_iterator_spec(p_.get());
        if (b.spec_.get() != spec)
            b.spec_.reset(mr_spec_ref(spec));
        return rc == MR_OK;
    }

    class range;
    /* for (const millrace::block &b : it.blocks(32)): the remaining blocks of up to `want`
     * elements. */
    range blocks(std::size_t want = 1) &;

    void rewind()
    {
        status st;
        st.check(mr_iterator_rewind(p_.get(), st.get()));
    }
    void rest()
    {
        status st;
        st.check(mr_iterator_rest(p_.get(), st.get()));
    }
    /* The position after the last element; the iterator must have been opened with positions. */
    bytes save()
    {
        return saved(nullptr, 0);
    }
    /* The position after row `rows` of the block delivered last. */
    bytes save_at(const block &b, std::size_t rows)
    {
        return saved(&b.b_, rows);
    }
    void restore(const void *data, std::size_t size)
    {
        status st;
        st.check(mr_iterator_restore(p_.get(), data, size, st.get()));
    }
    void restore(const bytes &position)
    {
        restore(position.data(), position.size());
    }
    void cancel() noexcept
    {
        mr_iterator_cancel(p_.get());
    }
    const mr_spec *spec() const noexcept /* borrowed */
    {
        return mr_iterator_spec(p_.get());
    }
    mr_iterator *get() const noexcept /* borrowed */
    {
        return p_.get();
    }
    explicit operator bool() const noexcept
    {
        return p_ != nullptr;
    }

  private:
    bytes saved(const mr_block *b, std::size_t rows)
    {
        status st;
        void *data = nullptr;
        std::size_t size = 0;
        st.check(b ? mr_iterator_save_at(p_.get(), b, rows, &data, &size, st.get())
                   : mr_iterator_save(p_.get(), &data, &size, st.get()));
        std::unique_ptr<void, deleter> owned(data);
        const std::byte *first = static_cast<const std::byte *>(data);
        return bytes(first, first + size);
    }
    std::unique_ptr<mr_iterator, deleter> p_;
};

/* What a range-based for runs over; the iterator must outlive it. */
class iterator::range
{
  public:
    struct end_type {
    };
    class cursor
    {
      public:
        explicit cursor(range &r) : r_(&r)
        {
            ++*this;
        }
        const block &operator*() const noexcept
        {
            return r_->b_;
        }
        cursor &operator++()
        {
            ends_ = !r_->it_->next(r_->b_, r_->want_);
            return *this;
        }
        bool operator!=(end_type) const noexcept
        {
            return !ends_;
        }

      private:
        range *r_;
        bool ends_ = false;
    };
    range(iterator &it, std::size_t want) noexcept : it_(&it), want_(want)
    {
    }
    cursor begin()
    {
        return cursor(*this);
    }
    end_type end() const noexcept
    {
        return {};
    }

  private:
    iterator *it_;
    std::size_t want_;
    block b_;
};

inline iterator::range iterator::blocks(std::size_t want) &
{
    return range(*this, want);
}

} // namespace millrace
#endif
