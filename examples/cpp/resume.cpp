// SPDX-License-Identifier: Apache-2.0
// Reads batches, saves the position after the second one, and continues from there in another
// iterator, as another process would. Prints each batch on a line.
#include <millrace/millrace.hpp>
#include <iostream>

static void print(const millrace::block &b)
{
    for (std::int64_t x : b.column(0).all<std::int64_t>())
        std::cout << x << ' ';
    std::cout << '\n';
}

static millrace::dataset shuffled()
{
    mr_shuffle_opts seed{};
    seed.seed = 7;
    seed.has_seed = true;
    return millrace::dataset(mr_batch(mr_shuffle(mr_range(0, 20, 1), 20, &seed), 4, nullptr));
}

int main()
try {
    millrace::bytes position;
    {
        mr_iterator_opts opts{};
        opts.positions = true;
        millrace::iterator it(shuffled(), opts);
        millrace::block b;
        for (int i = 0; i < 2 && it.next(b); i++)
            print(b);
        position = it.save();
    }
    millrace::iterator it(shuffled());
    it.restore(position);
    for (const millrace::block &b : it.blocks())
        print(b);
    return 0;
} catch (const millrace::error &e) {
    std::cerr << e.what() << '\n';
    return 1;
}
