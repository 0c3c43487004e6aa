// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <iostream>
#include <millrace/millrace-transport.h>
#include <millrace/millrace.h>
#include <vector>

int main()
{
    mr_service_opts opts{};
    opts.streams = 3;
    mr_dataset *ds = mr_service_distribute(mr_range(0, 9, 1), "local", &opts);
    mr_iterator *it = nullptr;
    mr_block b = MR_BLOCK_EMPTY;
    mr_status st;
    std::vector<std::int64_t> seen;
    mr_code rc = mr_iterator_open(&it, ds, nullptr, &st);
    while (rc == MR_OK && (rc = mr_iterator_next(it, 4, &b, &st)) == MR_OK)
        for (std::size_t i = 0; i < b.rows; i++)
            seen.push_back(*static_cast<std::int64_t *>(mr_array_at(&b.columns[0], i)));
    if (rc != MR_END)
        std::cerr << st.message << '\n';
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    return seen == std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8} ? 0 : 1;
}
