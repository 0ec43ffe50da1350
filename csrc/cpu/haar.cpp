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

// `rows` maps leaf i to buffer row rows[i] (null: i). Fibres of inner > 1 lie side by side: a leaf of all is one row.
template <class T>
void read_side_by_side(const T* cells, std::int64_t n, std::int64_t inner, std::int64_t width, const std::int32_t* rows,
                       T* buffer) {
    for (std::int64_t i = 0; i < n; ++i)
        std::memcpy(buffer + (rows ? rows[i] : i) * width, cells + i * inner,
                    static_cast<std::size_t>(width) * sizeof(T));
}

template <class T>
void write_side_by_side(const T* buffer, std::int64_t n, std::int64_t inner, std::int64_t width,
                        const std::int32_t* rows, T* cells) {
    for (std::int64_t i = 0; i < n; ++i)
        std::memcpy(cells + i * inner, buffer + (rows ? rows[i] : i) * width,
                    static_cast<std::size_t>(width) * sizeof(T));
}

}  // namespace

template <class T>
void haar(const T* x, std::int64_t outer, std::int64_t n, std::int64_t inner, const HaarStep* steps,
          const std::int32_t* slot, bool inverse, T* out, int threads, const Poll& poll) {
    const auto merges = static_cast<std::size_t>(n - 1);
    std::vector<std::int32_t> left(merges), right(merges);
    std::vector<T> major(merges), minor(merges);
    for (std::size_t s = 0; s < merges; ++s) {
        const auto r = math::merge_rotation<T>(steps[s].left_size, steps[s].right_size);
        left[s] = steps[s].left;
        right[s] = steps[s].right;
        major[s] = r.major;
        minor[s] = r.minor;
    }
    const auto turn = [&](T* buffer, std::int64_t width) {
        loops<T>().rotate(buffer, width, left.data(), right.data(), major.data(), minor.data(), n - 1, inverse);
    };
    const std::int32_t *rows_in = inverse ? slot : nullptr, *rows_out = inverse ? nullptr : slot;
    if (inner >= lanes<T>) {
        const std::int64_t fits = buffer_bytes / static_cast<std::int64_t>(sizeof(T)) / n / lanes<T> * lanes<T>;
        const std::int64_t width = std::clamp(fits, lanes<T>, 8 * lanes<T>), stretches = (inner + width - 1) / width;
        const auto transform = [&](std::int64_t task) {
            const std::int64_t begin = task % stretches * width, w = std::min(width, inner - begin);
            const std::int64_t at = task / stretches * n * inner + begin;
            std::vector<T> buffer(static_cast<std::size_t>(n * w));
            read_side_by_side(x + at, n, inner, w, rows_in, buffer.data());
            turn(buffer.data(), w);
            write_side_by_side(buffer.data(), n, inner, w, rows_out, out + at);
        };
        return parallel_for(outer * stretches, threads, transform, poll);
    }
    // Short rows of memory: fibres are taken one by one, a block of them at a time.
    const std::int64_t fibres = outer * inner, groups = (fibres + lanes<T> - 1) / lanes<T>;
    const auto transform = [&](std::int64_t group) {
        std::vector<T> buffer(static_cast<std::size_t>(n * lanes<T>));
        const std::int64_t first = group * lanes<T>, count = std::min(lanes<T>, fibres - first);
        const auto start = [&](std::int64_t f) { return f / inner * n * inner + f % inner; };
        if (inner == 1 && count == lanes<T>) {
            const T* from[lanes<T>];
            T* to[lanes<T>];
            for (std::int64_t l = 0; l < lanes<T>; ++l) {
                from[l] = x + start(first + l);
                to[l] = out + start(first + l);
            }
            loops<T>().gather(from, n, rows_in, buffer.data());
            turn(buffer.data(), lanes<T>);
            loops<T>().scatter(buffer.data(), n, rows_out, to);
            return;
        }
        for (std::int64_t f = 0; f < count; ++f)
            for (std::int64_t i = 0; i < n; ++i)
                buffer[static_cast<std::size_t>((rows_in ? rows_in[i] : i) * lanes<T> + f)] =
                    x[start(first + f) + i * inner];
        turn(buffer.data(), lanes<T>);
        for (std::int64_t f = 0; f < count; ++f)
            for (std::int64_t i = 0; i < n; ++i)
                out[start(first + f) + i * inner] =
                    buffer[static_cast<std::size_t>((rows_out ? rows_out[i] : i) * lanes<T> + f)];
    };
    parallel_for(groups, threads, transform, poll);
}

template void haar(const float*, std::int64_t, std::int64_t, std::int64_t, const HaarStep*, const std::int32_t*, bool,
                   float*, int, const Poll&);
template void haar(const double*, std::int64_t, std::int64_t, std::int64_t, const HaarStep*, const std::int32_t*, bool,
                   double*, int, const Poll&);

}  // namespace pyattnorg::cpu
