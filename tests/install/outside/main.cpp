// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <iostream>
#include <millrace/millrace.h>
#include <numeric>
#include <vector>

int main()
{
    mr_dataset *ds = mr_dataset_ref(mr_range(0, 5, 1));
    mr_iterator *it = nullptr;
    mr_block b = MR_BLOCK_EMPTY;
    mr_status st;
    std::vector<std::int64_t> seen;
    mr_code rc = mr_iterator_open(&it, ds, nullptr, &st);
    while (rc == MR_OK && (rc = mr_iterator_next(it, 3, &b, &st)) == MR_OK)
        for (std::size_t i = 0; i < b.rows; i++)
            seen.push_back(*static_cast<std::int64_t *>(mr_array_at(&b.columns[0], i)));
    if (rc != MR_END)
        std::cerr << st.message << '\n';
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    mr_dataset_unref(ds);
    return rc == MR_END && std::accumulate(seen.begin(), seen.end(), std::int64_t{0}) == 10 ? 0 : 1;
}
