// The inner loops, written once; loops_*.cpp compile them for one instruction set each.
//
// Every output is a sum in one fixed order (features ascending, then panels), and 1 * x + acc rounds like x + acc, so
// the distances are the same on all instruction sets; only Haar rotations may differ in the last bit (fused or not).
//
// No standard templates here: an inline function compiled for AVX could be the copy that the linker keeps for all.

#include "../math/haar.hpp"
#include "../math/term.hpp"
#include "isa.hpp"

namespace pyattnorg::cpu::PYATTNORG_ISA {
namespace {

#include "simd.hpp"

template <class T, Tile kind>
inline Vector<T> add_term(Vector<T> sum, Vector<T> a, Vector<T> b, Vector<T> factor) {
    if constexpr (kind == Tile::maxima) return sum + factor * math::larger(a, b);
    if constexpr (kind == Tile::differences) return sum + factor * magnitude<T>(a - b);
    if constexpr (kind == Tile::squares) return sum + (a - b) * (a - b);
    if constexpr (kind == Tile::products) return sum + a * b;
}

// One block against R points: R x (lanes / width) accumulators stay in registers, a point's value is broadcast.
template <class T, Tile kind, int R>
void tile_of(const T* left, const T* const* right, std::int64_t features, const T* weights, const double* left_sums,
             const double* right_sums, double* sums) {
    constexpr int V = static_cast<int>(lanes<T>) / width<T>;
    Vector<T> acc[R][V];
    for (int r = 0; r < R; ++r)
        for (int v = 0; v < V; ++v) acc[r][v] = Vector<T>{};
    const T* row[R];
    for (int r = 0; r < R; ++r) row[r] = right[r];
    Vector<T> factor = opaque_one<T>();
    for (std::int64_t f = 0; f < features; ++f) {
        Vector<T> a[V];
#pragma GCC unroll 8
        for (int v = 0; v < V; ++v) a[v] = load(left + f * lanes<T> + v * width<T>);
        if constexpr (kind == Tile::differences)
            if (weights) factor = broadcast(weights[f]);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
            const Vector<T> b = broadcast(row[r][f * lanes<T>]);
#pragma GCC unroll 8
            for (int v = 0; v < V; ++v) acc[r][v] = add_term<T, kind>(acc[r][v], a[v], b, factor);
        }
    }
    for (int r = 0; r < R; ++r) {
        T out[lanes<T>];
        for (int v = 0; v < V; ++v) store(out + v * width<T>, acc[r][v]);
        double* sum = sums + r * lanes<T>;
        for (int l = 0; l < lanes<T>; ++l)
            sum[l] += kind == Tile::maxima
                          ? math::l1_from_maxima(static_cast<double>(out[l]), left_sums[l], right_sums[r])
                          : static_cast<double>(out[l]);
    }
}

template <class T, Tile kind>
void tile_rows(const T* left, const T* const* right, int rows, std::int64_t features, const T* weights,
               const double* left_sums, const double* right_sums, double* sums) {
    static_assert(PYATTNORG_ROWS <= most_rows);
    switch (rows) {
        case 1: return tile_of<T, kind, 1>(left, right, features, weights, left_sums, right_sums, sums);
        case 2: return tile_of<T, kind, 2>(left, right, features, weights, left_sums, right_sums, sums);
#if PYATTNORG_ROWS >= 4
        case 3: return tile_of<T, kind, 3>(left, right, features, weights, left_sums, right_sums, sums);
        case 4: return tile_of<T, kind, 4>(left, right, features, weights, left_sums, right_sums, sums);
#endif
#if PYATTNORG_ROWS >= 5
        case 5: return tile_of<T, kind, 5>(left, right, features, weights, left_sums, right_sums, sums);
#endif
#if PYATTNORG_ROWS >= 8
        case 6: return tile_of<T, kind, 6>(left, right, features, weights, left_sums, right_sums, sums);
        case 7: return tile_of<T, kind, 7>(left, right, features, weights, left_sums, right_sums, sums);
        case 8: return tile_of<T, kind, 8>(left, right, features, weights, left_sums, right_sums, sums);
#endif
    }
}

template <class T>
void tile(Tile kind, const T* left, const T* const* right, int rows, std::int64_t features, const T* weights,
          const double* left_sums, const double* right_sums, double* sums) {
    switch (kind) {
        case Tile::maxima:
            return tile_rows<T, Tile::maxima>(left, right, rows, features, weights, left_sums, right_sums, sums);
        case Tile::differences:
            return tile_rows<T, Tile::differences>(left, right, rows, features, weights, left_sums, right_sums, sums);
        case Tile::squares:
            return tile_rows<T, Tile::squares>(left, right, rows, features, weights, left_sums, right_sums, sums);
        case Tile::products:
            return tile_rows<T, Tile::products>(left, right, rows, features, weights, left_sums, right_sums, sums);
    }
}

template <class T>
inline void load_lanes(const BlockSource<T>& x, std::int64_t at, T centre, T* out) {
    for (int l = 0; l < lanes<T>; ++l) out[l] = x.row[l][at] - centre;
}

template <class T>
void dense_features(const BlockSource<T>& x, std::int64_t f0, std::int64_t f1, const T* centre, const T* scale,
                    T* out) {
    for (std::int64_t f = f0; f < f1; ++f, out += lanes<T>) {
        load_lanes(x, f * x.stride_b, centre ? centre[f] : T(0), out);
        if (scale)
            for (int l = 0; l < lanes<T>; ++l) out[l] *= scale[f];
    }
}

// Emits the features that one folder of a (its sums over that folder stand in `values`) has over all folders of b.
template <class T>
inline T* emit_folder(const T* values, T factor, const Program<T>& b, T* inner, T* out) {
    constexpr int L = static_cast<int>(lanes<T>);
    for (std::int64_t s = 0; s < b.n_steps; ++s) {
        T* slot = inner + b.slot[s] * L;
        const T* value = b.leaf[s] >= 0 ? values + b.leaf[s] * L : slot;
        if (const T scale = factor * b.scale[s]; scale != T(0)) {
            for (int l = 0; l < L; ++l) out[l] = scale * value[l];
            out += L;
        }
        if (b.add[s])
            for (int l = 0; l < L; ++l) slot[l - L] += value[l];
        else if (value != slot)
            for (int l = 0; l < L; ++l) slot[l] = value[l];
    }
    return out;
}

template <class T>
void tree_features(const BlockSource<T>& x, const Program<T>& a, const Program<T>& b, std::int64_t s0, std::int64_t s1,
                   const T* centre, T* slots, T* inner, T* out) {
    const std::int64_t slab = b.n_leaves * lanes<T>;
    for (std::int64_t s = s0; s < s1; ++s) {
        T* values = slots + a.slot[s] * slab;
        if (const std::int64_t leaf = a.leaf[s]; leaf >= 0)
            for (std::int64_t k = 0; k < b.n_leaves; ++k)
                load_lanes(x, leaf * x.stride_a + k * x.stride_b, centre ? centre[leaf * b.n_leaves + k] : T(0),
                           values + k * lanes<T>);
        if (a.scale[s] != T(0)) out = emit_folder(values, a.scale[s], b, inner, out);
        if (a.add[s])
            for (std::int64_t i = 0; i < slab; ++i) values[i - slab] += values[i];
    }
}

template <class T>
void row_sums(const T* features, std::int64_t n, double* sums, double* norms) {
    constexpr int L = static_cast<int>(lanes<T>);
    for (std::int64_t f0 = 0; f0 < n; f0 += panel_features, sums += L) {
        T sum[L] = {}, norm[L] = {};
        const std::int64_t f1 = f0 + panel_features < n ? f0 + panel_features : n;
        for (std::int64_t f = f0; f < f1; ++f)
            for (int l = 0; l < L; ++l) {
                const T value = features[f * L + l];
                sum[l] += value;    // the order of the tiles: equal points get a distance of exactly 0
                norm[l] += math::larger(value, -value);
            }
        for (int l = 0; l < L; ++l) {
            sums[l] = static_cast<double>(sum[l]);
            norms[l] += static_cast<double>(norm[l]);
        }
    }
}

template <class T>
void rotate(T* rows, std::int64_t width, const std::int32_t* left, const std::int32_t* right, const T* major,
            const T* minor, std::int64_t n_steps, bool inverse) {
    for (std::int64_t i = 0; i < n_steps; ++i) {
        const std::int64_t step = inverse ? n_steps - 1 - i : i;
        T* __restrict__ a = rows + left[step] * width;
        T* __restrict__ b = rows + right[step] * width;
        const math::Rotation<T> r{major[step], minor[step]};
        if (inverse)
            for (std::int64_t k = 0; k < width; ++k) math::unmerge(r, a[k], b[k]);
        else
            for (std::int64_t k = 0; k < width; ++k) math::merge(r, a[k], b[k]);
    }
}

template <class T>
constexpr Loops<T> table{PYATTNORG_ISA_NAME, PYATTNORG_ROWS,     tile<T>,     dense_features<T>,
                         tree_features<T>,   row_sums<T>,        rotate<T>};

}  // namespace

const Loops<float>& float_loops() { return table<float>; }
const Loops<double>& double_loops() { return table<double>; }

}  // namespace pyattnorg::cpu::PYATTNORG_ISA
