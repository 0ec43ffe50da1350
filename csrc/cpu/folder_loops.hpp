// Inner loops over rows of memory, compiled once per instruction set as those of isa.hpp, for trees that are built and
// changed folder by folder: a row is a folder's mean, its columns are features.
#pragma once

#include <cstdint>

#include "../math/merging.hpp"
#include "interchange.hpp"
#include "isa.hpp"

namespace pyattnorg::cpu {

// Rows that a block is set against are packed: their own distance in memory is often a power of two, and then they push
// one another out of the cache. Up to so many columns of so many rows, a multiple of what any instruction set takes.
inline constexpr std::int64_t packed_columns = 512;
template <class T>
inline constexpr std::int64_t packed_stride = packed_columns + lanes<T>;
inline constexpr std::int64_t packed_rows = 64;

template <class T>
struct FolderLoops {
    int rows;  // that `against` takes at once

    // sums[r][lane] += sum over columns c of max(block[c][lane], packed[r][c]), r < rows of the table.
    void (*against)(const T* block, const T* packed, std::int64_t columns, double* sums);

    // out[c] = share_a a[c] + share_b b[c]
    void (*mean)(const T* a, const T* b, T share_a, T share_b, std::int64_t columns, T* out);

    // Sum of |a - b|.
    double (*distance)(const T* a, const T* b, std::int64_t columns);

    // Adds to `sums`.
    void (*around)(const T* a, const T* b, const T* y, const T* p, const math::AroundWeights<T>& weights,
                   std::int64_t columns, Around* sums);

    // Sums of x and of |x|.
    void (*sum)(const T* x, std::int64_t columns, double* sum, double* norm);

    // sum[c] += x[c] - from[c], square[c] += (x[c] - from[c])^2
    void (*deviations)(const T* x, const T* from, std::int64_t columns, double* sum, double* square);
};

// Those of the instruction set in use.
template <class T>
const FolderLoops<T>& folder_loops();

}  // namespace pyattnorg::cpu
