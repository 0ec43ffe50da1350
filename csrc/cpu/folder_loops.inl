// The inner loops of folder_loops.hpp, written once; loops_*.cpp compile them for one instruction set each, after
// loops.inl. Sums are taken in one fixed order: in T over a stretch (and, against packed
// rows, over stretches), in double over all.

#include "folder_loops.hpp"

namespace pyattnorg::cpu::PYATTNORG_ISA {
namespace {

template <class T>
inline double sum_of(Vector<T> v) {
    T lane[width<T>];
    store(lane, v);
    double sum = 0;
    for (int l = 0; l < width<T>; ++l) sum += static_cast<double>(lane[l]);
    return sum;
}

template <class T>
inline T apart(T a, T b) {
    return a > b ? a - b : b - a;
}

// As many accumulators as registers allow: 16, 8 of AVX2's 16, 8 of SSE's.
template <class T>
inline constexpr int rows_at_once = lanes<T> / width<T> == 1   ? 16
                                    : lanes<T> / width<T> == 2 ? 4
                                                               : 2;

template <class T>
void against(const T* block, const T* packed, std::int64_t columns, double* sums) {
    constexpr int V = static_cast<int>(lanes<T>) / width<T>, R = rows_at_once<T>;
    const Vector<T> one = opaque_one<T>();
    Vector<T> total[R][V] = {};
    for (std::int64_t c0 = 0; c0 < columns; c0 += stretch) {
        const std::int64_t c1 = c0 + stretch < columns ? c0 + stretch : columns;
        Vector<T> acc[R][V] = {};
        for (std::int64_t c = c0; c < c1; ++c) {
            Vector<T> a[V];
#pragma GCC unroll 8
            for (int v = 0; v < V; ++v) a[v] = load(block + c * lanes<T> + v * width<T>);
#pragma GCC unroll 16
            for (int r = 0; r < R; ++r) {
                const T* b = packed + r * packed_stride<T> + c;
#pragma GCC unroll 8
                for (int v = 0; v < V; ++v) acc[r][v] = acc[r][v] + one * larger(a[v], b);
            }
        }
        for (int r = 0; r < R; ++r)
            for (int v = 0; v < V; ++v) total[r][v] += acc[r][v];
    }
    for (int r = 0; r < R; ++r) {
        T out[lanes<T>];
        for (int v = 0; v < V; ++v) store(out + v * width<T>, total[r][v]);
        for (int l = 0; l < lanes<T>; l += width<double>)
            store(sums + r * lanes<T> + l, load(sums + r * lanes<T> + l) + widened(out + l));
    }
}

template <class T>
void mean(const T* a, const T* b, T share_a, T share_b, std::int64_t columns, T* out) {
    std::int64_t c = 0;
    const Vector<T> of_a = broadcast(share_a), of_b = broadcast(share_b);
    for (; c + width<T> <= columns; c += width<T>) store(out + c, of_a * load(a + c) + of_b * load(b + c));
    for (; c < columns; ++c) out[c] = share_a * a[c] + share_b * b[c];
}

template <class T>
double distance(const T* a, const T* b, std::int64_t columns) {
    constexpr int V = 4;
    double sum = 0;
    std::int64_t c = 0;
    while (c + V * width<T> <= columns) {
        Vector<T> acc[V] = {};
        for (int s = 0; s < stretch && c + V * width<T> <= columns; ++s, c += V * width<T>)
#pragma GCC unroll 4
            for (int v = 0; v < V; ++v) acc[v] += magnitude<T>(load(a + c + v * width<T>) - load(b + c + v * width<T>));
        sum += sum_of<T>((acc[0] + acc[1]) + (acc[2] + acc[3]));
    }
    for (; c < columns; ++c) sum += static_cast<double>(apart(a[c], b[c]));
    return sum;
}

template <class T>
void around(const T* a, const T* b, const T* y, const T* p, const math::AroundWeights<T>& weights, std::int64_t columns,
            Around* sums) {
    const Vector<T> wx = broadcast(weights.x), wp = broadcast(weights.p);
    const Vector<T> wa = broadcast(weights.other[0]), wb = broadcast(weights.other[1]);
    const Vector<T> ra = broadcast(weights.rest[0]), rb = broadcast(weights.rest[1]);
    std::int64_t c = 0;
    while (c + width<T> <= columns) {
        Vector<T> cost{}, first{}, second{};
        for (int s = 0; s < stretch && c + width<T> <= columns; ++s, c += width<T>) {
            const Vector<T> va = load(a + c), vb = load(b + c), vy = load(y + c), vp = load(p + c);
            const Vector<T> ab = magnitude<T>(va - vb);
            const Vector<T> now = wx * ab + wp * magnitude<T>(vp - vy);
            cost += ab;
            first += math::gain(now, wa, magnitude<T>(va - vy), ra, magnitude<T>(vp - vb));
            second += math::gain(now, wb, magnitude<T>(vb - vy), rb, magnitude<T>(vp - va));
        }
        sums->cost += sum_of<T>(cost);
        sums->gain[0] += sum_of<T>(first);
        sums->gain[1] += sum_of<T>(second);
    }
    for (; c < columns; ++c) {
        const T now = weights.x * apart(a[c], b[c]) + weights.p * apart(p[c], y[c]);
        sums->cost += static_cast<double>(apart(a[c], b[c]));
        sums->gain[0] += static_cast<double>(
            math::gain(now, weights.other[0], apart(a[c], y[c]), weights.rest[0], apart(p[c], b[c])));
        sums->gain[1] += static_cast<double>(
            math::gain(now, weights.other[1], apart(b[c], y[c]), weights.rest[1], apart(p[c], a[c])));
    }
}

template <class T>
void sum(const T* x, std::int64_t columns, double* sum, double* norm) {
    constexpr int V = 4;
    std::int64_t c = 0;
    *sum = *norm = 0;
    while (c + V * width<T> <= columns) {
        Vector<T> acc[V] = {}, magnitudes[V] = {};
        for (int s = 0; s < stretch && c + V * width<T> <= columns; ++s, c += V * width<T>)
#pragma GCC unroll 4
            for (int v = 0; v < V; ++v) {
                const Vector<T> value = load(x + c + v * width<T>);
                acc[v] += value;
                magnitudes[v] += magnitude<T>(value);
            }
        *sum += sum_of<T>((acc[0] + acc[1]) + (acc[2] + acc[3]));
        *norm += sum_of<T>((magnitudes[0] + magnitudes[1]) + (magnitudes[2] + magnitudes[3]));
    }
    for (; c < columns; ++c) {
        *sum += static_cast<double>(x[c]);
        *norm += static_cast<double>(apart(x[c], T(0)));
    }
}

template <class T>
void deviations(const T* x, const T* from, std::int64_t columns, double* sum, double* square) {
    constexpr int W = width<double>;
    std::int64_t c = 0;
    for (; c + W <= columns; c += W) {
        const Vector<double> d = widened(x + c) - widened(from + c);
        store(sum + c, load(sum + c) + d);
        store(square + c, load(square + c) + d * d);
    }
    for (; c < columns; ++c) {
        const double d = static_cast<double>(x[c]) - static_cast<double>(from[c]);
        sum[c] += d;
        square[c] += d * d;
    }
}

template <class T>
constexpr FolderLoops<T> folder_table{rows_at_once<T>, against<T>, mean<T>,      distance<T>,
                                      around<T>,       sum<T>,     deviations<T>};

}  // namespace

const FolderLoops<float>& float_folder_loops() {
    return folder_table<float>;
}
const FolderLoops<double>& double_folder_loops() {
    return folder_table<double>;
}

}  // namespace pyattnorg::cpu::PYATTNORG_ISA
