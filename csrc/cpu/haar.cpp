// The tree-Haar transform along one axis: n - 1 rotations of rows in a buffer that stays in cache, so the axis costs
// one read and one write of memory. A fibre is one vector along the axis; W fibres go together, a row of the buffer
// holds one leaf of all of them.
#include <algorithm>
#include <cstring>
#include <vector>

#include "../kernels.hpp"
#include "../math/haar.hpp"
#include "isa.hpp"
#include "parallel.hpp"

namespace pyattnorg::cpu {
namespace {

constexpr std::int64_t buffer_bytes = 256 * 1024;  // a share of a core's second-level cache

// Fibres number outer * inner; fibre f starts at (f / inner) n inner + f % inner and steps by inner.
template <class T>
struct Layout {
    std::int64_t n, inner;

    std::int64_t start(std::int64_t fibre) const { return fibre / inner * n * inner + fibre % inner; }
};

// `rows` maps leaf i to buffer row rows[i] (null: i).
template <class T, bool reading>
void move(T* array, T* buffer, const Layout<T>& at, std::int64_t f0, std::int64_t width, const std::int32_t* rows) {
    const bool together = f0 / at.inner == (f0 + width - 1) / at.inner;  // all in one run of `inner`
    for (std::int64_t i0 = 0; i0 < at.n; i0 += lanes<T>) {
        const std::int64_t i1 = std::min(at.n, i0 + lanes<T>);
        if (together) {
            for (std::int64_t i = i0; i < i1; ++i) {
                T* row = buffer + (rows ? rows[i] : i) * width;
                T* cells = array + at.start(f0) + i * at.inner;
                std::memcpy(reading ? row : cells, reading ? cells : row, static_cast<std::size_t>(width) * sizeof(T));
            }
            continue;
        }
        for (std::int64_t f = 0; f < width; ++f) {  // a line of cells at a time, so that each is touched once
            T* cells = array + at.start(f0 + f);
            for (std::int64_t i = i0; i < i1; ++i) {
                T& row = buffer[(rows ? rows[i] : i) * width + f];
                if constexpr (reading)
                    row = cells[i * at.inner];
                else
                    cells[i * at.inner] = row;
            }
        }
    }
}

}  // namespace

template <class T>
void haar(const T* x, std::int64_t outer, std::int64_t n, std::int64_t inner, const HaarStep* steps,
          const std::int32_t* slot, bool inverse, T* out, int threads, const Poll& poll) {
    const auto count = static_cast<std::size_t>(n - 1);
    std::vector<std::int32_t> left(count), right(count);
    std::vector<T> major(count), minor(count);
    for (std::size_t s = 0; s < count; ++s) {
        const auto r = math::merge_rotation<T>(steps[s].left_size, steps[s].right_size);
        left[s] = steps[s].left;
        right[s] = steps[s].right;
        major[s] = r.major;
        minor[s] = r.minor;
    }
    const std::int64_t fits = buffer_bytes / static_cast<std::int64_t>(sizeof(T)) / n / lanes<T> * lanes<T>;
    const std::int64_t width = std::clamp(fits, lanes<T>, 8 * lanes<T>);
    const Layout<T> layout{n, inner};
    // Where `inner` is long, a task's fibres lie side by side in memory: tasks never cross its end.
    const std::int64_t run = inner >= lanes<T> ? inner : outer * inner;
    const std::int64_t tasks_per_run = (run + width - 1) / width;
    const auto transform = [&](std::int64_t task) {
        const std::int64_t begin = task % tasks_per_run * width;
        const std::int64_t f0 = task / tasks_per_run * run + begin, w = std::min(width, run - begin);
        std::vector<T> buffer(static_cast<std::size_t>(n * w));
        move<T, true>(const_cast<T*>(x), buffer.data(), layout, f0, w, inverse ? slot : nullptr);
        loops<T>().rotate(buffer.data(), w, left.data(), right.data(), major.data(), minor.data(), n - 1, inverse);
        move<T, false>(out, buffer.data(), layout, f0, w, inverse ? nullptr : slot);
    };
    parallel_for(outer * inner / run * tasks_per_run, threads, transform, poll);
}

template void haar(const float*, std::int64_t, std::int64_t, std::int64_t, const HaarStep*, const std::int32_t*, bool,
                   float*, int, const Poll&);
template void haar(const double*, std::int64_t, std::int64_t, std::int64_t, const HaarStep*, const std::int32_t*, bool,
                   double*, int, const Poll&);

}  // namespace pyattnorg::cpu
