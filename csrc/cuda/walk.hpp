// Steps of a tree's program over columns that stand side by side: sums of folders from what stands at leaves.
#pragma once

#include "../kernels.hpp"

namespace pyattnorg::cuda {

// out[o, e, c] = scale x sum over the folder of step s, for the e-th of steps begin..end that emits; c < columns.
// in [outer, ., columns] holds leaves by number, or in the order of the program from the one numbered `from` on, where
// that is not -1. `slots`
// [n_slots][columns] keeps sums from run to run (outer = 1), or is null where one run does all steps.
template <class T>
void walk(const Walk& tree, std::int64_t begin, std::int64_t end, std::int64_t from, const T* in, std::int64_t outer,
          std::int64_t in_stride, std::int64_t columns, T* slots, T* out, std::int64_t out_stride, Stream stream);

}  // namespace pyattnorg::cuda
