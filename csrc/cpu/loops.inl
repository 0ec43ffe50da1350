// The inner loops, written once; loops_*.cpp compile them for one instruction set each.
//
// Every output is a sum in one fixed order (features ascending, then panels), and 1 * x + acc rounds like x + acc, so
// l1 distances are the same on all instruction sets; products that are added up (Tile::squares, Tile::products, Krylov
// spaces, Haar rotations) may differ in the last bits, as multiply-adds are fused or not.
//
// No standard templates here: an inline function compiled for AVX could be the copy that the linker keeps for all.

#include "../math/haar.hpp"
#include "../math/term.hpp"
#include "isa.hpp"

namespace pyattnorg::cpu::PYATTNORG_ISA {
namespace {

#include "simd.hpp"

template <class T, Tile kind>
inline Vector<T> add_term(Vector<T> sum, Vector<T> a, const T* b, Vector<T> factor) {
    if constexpr (kind == Tile::maxima) return sum + factor * larger(a, b);
    if constexpr (kind == Tile::differences) return sum + factor * magnitude<T>(difference(a, b));
    if constexpr (kind == Tile::squares) {
        const Vector<T> apart = difference(a, b);
        return sum + apart * apart;
    }
    if constexpr (kind == Tile::products) return multiply_add(sum, a, b);
}

// One block against R points: R x (lanes / width) accumulators stay in registers, a point's value is broadcast. Sums of
// short stretches are added up apart: their rounding errors are several times smaller than those of one long sum.
// Points that lie `together` fill blocks in order, so that one address a block finds them.
template <class T, Tile kind, int R, bool together>
void tile_of(const T* left, const T* const* right, std::int64_t features, const T* weights, const double* left_sums,
             const double* right_sums, double* sums) {
    constexpr int V = static_cast<int>(lanes<T>) / width<T>;
    Vector<T> total[R][V] = {};
    Vector<T> factor = opaque_one<T>();
    for (std::int64_t f0 = 0; f0 < features; f0 += stretch) {
        const std::int64_t f1 = f0 + stretch < features ? f0 + stretch : features;
        Vector<T> acc[R][V] = {};
        for (std::int64_t f = f0; f < f1; ++f) {
            Vector<T> a[V];
#pragma GCC unroll 8
            for (int v = 0; v < V; ++v) a[v] = load(left + f * lanes<T> + v * width<T>);
            if constexpr (kind == Tile::differences)
                if (weights) factor = broadcast(weights[f]);
#pragma GCC unroll 16
            for (int r = 0; r < R; ++r) {
                constexpr int L = static_cast<int>(lanes<T>);
                const T* b = (together ? right[r / L * L] + r % L : right[r]) + f * lanes<T>;
#pragma GCC unroll 8
                for (int v = 0; v < V; ++v) acc[r][v] = add_term<T, kind>(acc[r][v], a[v], b, factor);
            }
        }
        for (int r = 0; r < R; ++r)
            for (int v = 0; v < V; ++v) total[r][v] += acc[r][v];
    }
    for (int r = 0; r < R; ++r) {
        T out[lanes<T>];
        for (int v = 0; v < V; ++v) store(out + v * width<T>, total[r][v]);
        for (int l = 0; l < lanes<T>; l += width<double>) {
            const Vector<double> sum = widened(out + l);
            Vector<double> so_far = load(sums + r * lanes<T> + l);
            if constexpr (kind == Tile::maxima)
                so_far += math::l1_from_maxima(sum, load(left_sums + l), broadcast(right_sums[r]));
            else
                so_far += sum;
            store(sums + r * lanes<T> + l, so_far);
        }
    }
}

template <class T>
inline bool together(const T* const* right, int rows) {
    bool together = true;
    for (int r = 0; r < rows; ++r) together = together && right[r] == right[r / lanes<T> * lanes<T>] + r % lanes<T>;
    return together;
}

template <class T, Tile kind, int R>
inline void tile_rows(const T* left, const T* const* right, std::int64_t features, const T* weights,
                      const double* left_sums, const double* right_sums, double* sums) {
    (R > 8 || together(right, R) ? tile_of<T, kind, R, true> : tile_of<T, kind, R, false>)(left, right, features,
                                                                                           weights, left_sums,
                                                                                           right_sums, sums);
}

template <class T, Tile kind>
void tile_kind(const T* left, const T* const* right, int rows, std::int64_t features, const T* weights,
               const double* left_sums, const double* right_sums, double* sums) {
    if (rows == PYATTNORG_ROWS && (rows <= 8 || together(right, rows)))
        return tile_rows<T, kind, PYATTNORG_ROWS>(left, right, features, weights, left_sums, right_sums, sums);
    while (rows > 0) {  // the end of a stretch, or more addresses than there are registers for
        const int some = rows >= 8 ? 8 : rows >= 4 ? 4 : rows >= 2 ? 2 : 1;
        if constexpr (PYATTNORG_ROWS > 8)
            if (some == 8) tile_rows<T, kind, 8>(left, right, features, weights, left_sums, right_sums, sums);
        if (some == 4) tile_rows<T, kind, 4>(left, right, features, weights, left_sums, right_sums, sums);
        if (some == 2) tile_rows<T, kind, 2>(left, right, features, weights, left_sums, right_sums, sums);
        if (some == 1) tile_rows<T, kind, 1>(left, right, features, weights, left_sums, right_sums, sums);
        rows -= some;
        right += some;
        right_sums += some;
        sums += some * lanes<T>;
    }
}

template <class T>
void tile(Tile kind, const T* left, const T* const* right, int rows, std::int64_t features, const T* weights,
          const double* left_sums, const double* right_sums, double* sums) {
    switch (kind) {
        case Tile::maxima:
            return tile_kind<T, Tile::maxima>(left, right, rows, features, weights, left_sums, right_sums, sums);
        case Tile::differences:
            return tile_kind<T, Tile::differences>(left, right, rows, features, weights, left_sums, right_sums, sums);
        case Tile::squares:
            return tile_kind<T, Tile::squares>(left, right, rows, features, weights, left_sums, right_sums, sums);
        case Tile::products:
            return tile_kind<T, Tile::products>(left, right, rows, features, weights, left_sums, right_sums, sums);
    }
}

// One value of a whole block.
template <class T>
struct Row {
    static constexpr int V = static_cast<int>(lanes<T>) / width<T>;
    Vector<T> v[V];

    static Row at(const T* p) {
        Row row;
#pragma GCC unroll 4
        for (int i = 0; i < V; ++i) row.v[i] = load(p + i * width<T>);
        return row;
    }
    void to(T* p) const {
#pragma GCC unroll 4
        for (int i = 0; i < V; ++i) store(p + i * width<T>, v[i]);
    }
    Row& operator+=(const Row& other) {
#pragma GCC unroll 4
        for (int i = 0; i < V; ++i) v[i] += other.v[i];
        return *this;
    }
    Row& operator*=(T factor) {
#pragma GCC unroll 4
        for (int i = 0; i < V; ++i) v[i] *= broadcast(factor);
        return *this;
    }
    Row minus(T constant) const {
        Row row;
#pragma GCC unroll 4
        for (int i = 0; i < V; ++i) row.v[i] = v[i] - broadcast(constant);
        return row;
    }
    Row magnitudes() const {
        Row row;
#pragma GCC unroll 4
        for (int i = 0; i < V; ++i) row.v[i] = magnitude<T>(v[i]);
        return row;
    }
};

// out[k][lane] = x.row[lane][at + k stride] - centre[k] for k < n.
template <class T, class Value>
void load_lanes(const BlockSource<T, Value>& x, std::int64_t at, std::int64_t stride, std::int64_t n, const T* centre,
                T* out) {
    constexpr int L = static_cast<int>(lanes<T>), W = width<T>;
    constexpr std::int64_t ahead = 512 / sizeof(T);  // so many rows at once are more than hardware prefetches well
    std::int64_t k = 0;
    if constexpr (sizeof(Value) == sizeof(T))
        if (stride == 1)  // rows of memory become rows of lanes: square blocks are transposed in registers
            for (; k + W <= n; k += W)
                for (int l = 0; l < L; l += W) {
                    Vector<T> rows[W];
#pragma GCC unroll 16
                    for (int i = 0; i < W; ++i) {
                        rows[i] = load(x.row[l + i] + at + k);
                        __builtin_prefetch(x.row[l + i] + at + k + ahead);
                    }
                    transpose<T>(rows);
#pragma GCC unroll 16
                    for (int i = 0; i < W; ++i)
                        store(out + (k + i) * L + l, centre ? rows[i] - broadcast(centre[k + i]) : rows[i]);
                }
    for (; k < n; ++k) {
        const Value* first = x.row[0] + at + k * stride;
        T cells[L];
        if (!x.neighbours)
            for (int l = 0; l < L; ++l) cells[l] = x.row[l][at + k * stride];
        else if constexpr (sizeof(Value) == sizeof(T))
            Row<T>::at(first).to(cells);
        else
            for (int l = 0; l < L; ++l) cells[l] = first[l];
        Row<T>::at(cells).minus(centre ? centre[k] : T(0)).to(out + k * L);
    }
}

template <class T>
void dense_features(const BlockSource<T>& x, std::int64_t f0, std::int64_t f1, const T* centre, const T* scale,
                    T* out) {
    load_lanes(x, f0 * x.stride_b, x.stride_b, f1 - f0, centre ? centre + f0 : nullptr, out);
    if (!scale) return;
    for (std::int64_t f = f0; f < f1; ++f, out += lanes<T>) {
        Row<T> row = Row<T>::at(out);
        row *= scale[f];
        row.to(out);
    }
}

// Writes the features that one folder of a (its sums over that folder stand in `values`) has over all folders of b:
// from the leaves up, a folder's sum is that of its children, which get their scale on the way.
template <class T>
inline void emit_folder(const T* values, T factor, const FolderTable<T>& b, T* out) {
    const auto put = [&](std::int64_t f, Row<T> sum) {
        sum *= factor * b.scale[f];
        sum.to(out + f * lanes<T>);
    };
    const auto sum_of = [&](std::int64_t f) {
        return Row<T>::at(b.leaf[f] >= 0 ? values + b.leaf[f] * lanes<T> : out + f * lanes<T>);
    };
    for (std::int64_t i = 0; i < b.n_inner; ++i) {
        const std::int64_t f = b.inner[i], last = b.first[f + 1];
        Row<T> total = sum_of(b.first[f]);
        put(b.first[f], total);
        for (std::int64_t c = b.first[f] + 1; c < last; ++c) {
            const Row<T> sum = sum_of(c);
            total += sum;
            put(c, sum);
        }
        total.to(out + f * lanes<T>);
    }
    put(0, sum_of(0));
}

template <class T, class Value>
void tree_features(const BlockSource<T, Value>& x, const Program<T>& a, const FolderTable<T>& b, std::int64_t s0,
                   std::int64_t s1, const T* centre, T* slots, double* masses, T* out) {
    const std::int64_t slab = b.n_leaves * lanes<T>;
    for (std::int64_t s = s0; s < s1; ++s) {
        T* values = slots + a.slot[s] * slab;
        if (const std::int64_t leaf = a.leaf[s]; leaf >= 0) {
            load_lanes(x, leaf * x.stride_a, x.stride_b, b.n_leaves, centre ? centre + leaf * b.n_leaves : nullptr,
                       values);
            Row<T> mass = {};
            for (std::int64_t k = 0; k < b.n_leaves; ++k) {
                Row<T> cell = Row<T>::at(values + k * lanes<T>).magnitudes();
                cell *= a.leaf_scale[leaf] * b.leaf_scale[k];
                mass += cell;
            }
            T sum[lanes<T>];
            mass.to(sum);
            for (int l = 0; l < lanes<T>; ++l) masses[l] += static_cast<double>(sum[l]);
        }
        if (a.scale[s] != T(0)) {
            emit_folder(values, a.scale[s], b, out);
            out += b.n_folders * lanes<T>;
        }
        if (a.add[s])
            for (std::int64_t i = 0; i < slab; i += lanes<T>) {
                Row<T> sum = Row<T>::at(values - slab + i);
                sum += Row<T>::at(values + i);
                sum.to(values - slab + i);
            }
    }
}

template <class T>
void row_sums(const T* features, std::int64_t n, double* sums, double* norms) {
    constexpr int L = static_cast<int>(lanes<T>);
    for (std::int64_t p0 = 0; p0 < n; p0 += panel_features, sums += L) {
        const std::int64_t p1 = p0 + panel_features < n ? p0 + panel_features : n;
        Row<T> total = {}, norm = {};
        for (std::int64_t f0 = p0; f0 < p1; f0 += stretch) {  // the order of the tiles: equal points get exactly 0
            const std::int64_t f1 = f0 + stretch < p1 ? f0 + stretch : p1;
            Row<T> sum = {};
            for (std::int64_t f = f0; f < f1; ++f) {
                const Row<T> value = Row<T>::at(features + f * L);
                sum += value;
                norm += value.magnitudes();
            }
            total += sum;
        }
        T out[L], magnitudes[L];
        total.to(out);
        norm.to(magnitudes);
        for (int l = 0; l < L; ++l) {
            sums[l] = static_cast<double>(out[l]);
            const double sum = static_cast<double>(magnitudes[l]);
            norms[l] += sum;
            norms[L + l] += sum * sum;
        }
    }
}

template <class T>
void distances(const T* coordinates, std::int64_t n, std::int64_t m, std::int64_t x, std::int64_t begin,
               std::int64_t end, T* sums) {
    constexpr int W = width<T>, U = 4;
    std::int64_t y = begin;
    for (; y + U * W <= end; y += U * W) {
        Vector<T> squares[U] = {};
        for (std::int64_t k = 0; k < m; ++k) {
            const Vector<T> at = broadcast(coordinates[k * n + x]);
#pragma GCC unroll 4
            for (int u = 0; u < U; ++u) {
                const Vector<T> d = load(coordinates + k * n + y + u * W) - at;
                squares[u] += d * d;
            }
        }
#pragma GCC unroll 4
        for (int u = 0; u < U; ++u) store(sums + y + u * W, load(sums + y + u * W) + square_root<T>(squares[u]));
    }
    for (; y < end; ++y) {
        T square = 0;
        for (std::int64_t k = 0; k < m; ++k) {
            const T d = coordinates[k * n + y] - coordinates[k * n + x];
            square += d * d;
        }
        sums[y] += math::square_root(square);
    }
}

template <class T>
std::int64_t first_least(const T* x, std::int64_t n) {
    constexpr int W = width<T>, some = 64;
    T least = x[0];
    std::int64_t where = 0, i = 0;  // the stretch that holds the first of the least
    for (; i + some <= n; i += some) {
        Vector<T> smallest = load(x + i);
#pragma GCC unroll 32
        for (int k = W; k < some; k += W) {
            const Vector<T> v = load(x + i + k);
            smallest = v < smallest ? v : smallest;
        }
        T lane[W], here;
        store(lane, smallest);
        here = lane[0];
        for (int w = 1; w < W; ++w) here = lane[w] < here ? lane[w] : here;
        if (here < least) least = here, where = i;
    }
    for (; i < n; ++i)
        if (x[i] < least) least = x[i], where = i;
    while (x[where] != least) ++where;
    return where;
}

// Products of R rows with all vectors over the columns from j0 to j1, added to out.
template <class T, class Value, int R>
inline void products_of(const Value* rows, const T* vectors, std::int64_t n, std::int64_t j0, std::int64_t j1, T* out) {
    constexpr int W = width<T>, B = krylov_block;
    Vector<T> acc[R][B] = {};
    std::int64_t j = j0;
    for (; j + W <= j1; j += W) {
        Vector<T> v[B];
#pragma GCC unroll 4
        for (int r = 0; r < B; ++r) v[r] = load(vectors + r * n + j);
#pragma GCC unroll 2
        for (int i = 0; i < R; ++i) {
            const Vector<T> a = load_as<T>(rows + i * n + j);
#pragma GCC unroll 4
            for (int r = 0; r < B; ++r) acc[i][r] += a * v[r];
        }
    }
    for (int i = 0; i < R; ++i)
        for (int r = 0; r < B; ++r) {
            T lane[W], sum = 0;
            store(lane, acc[i][r]);
            for (int w = 0; w < W; ++w) sum += lane[w];
            for (std::int64_t k = j; k < j1; ++k) sum += rows[i * n + k] * vectors[r * n + k];
            out[i * B + r] += sum;
        }
}

template <class T, class Value>
void products(const Value* rows, std::int64_t n_rows, const T* vectors, std::int64_t n, T* out) {
    constexpr std::int64_t columns = 512;  // of all vectors: these stay in cache while rows stream by
    for (std::int64_t i = 0; i < n_rows * krylov_block; ++i) out[i] = 0;
    for (std::int64_t j0 = 0; j0 < n; j0 += columns) {
        const std::int64_t j1 = j0 + columns < n ? j0 + columns : n;
        std::int64_t i = 0;
        for (; i + 2 <= n_rows; i += 2)
            products_of<T, Value, 2>(rows + i * n, vectors, n, j0, j1, out + i * krylov_block);
        if (i < n_rows) products_of<T, Value, 1>(rows + i * n, vectors, n, j0, j1, out + i * krylov_block);
    }
}

template <class T>
void square_and_mask(T* values, std::int64_t n, T* masks) {
    for (std::int64_t i = 0; i < n * lanes<T>; i += width<T>) {
        const Vector<T> v = load(values + i);
        store(masks + i, where_not_zero<T>(broadcast(T(1)), v));
        store(values + i, v * v);
    }
}

// `lanes` fibres are lanes / width groups of `width`; a square of group and values is transposed in registers.
template <class T>
void gather(const T* const* fibres, std::int64_t n, const std::int32_t* rows, T* buffer) {
    constexpr int L = static_cast<int>(lanes<T>), W = width<T>;
    std::int64_t k = 0;
    for (; k + W <= n; k += W)
        for (int l = 0; l < L; l += W) {
            Vector<T> square[W];
#pragma GCC unroll 16
            for (int i = 0; i < W; ++i) square[i] = load(fibres[l + i] + k);
            transpose<T>(square);
#pragma GCC unroll 16
            for (int i = 0; i < W; ++i) store(buffer + (rows ? rows[k + i] : k + i) * L + l, square[i]);
        }
    for (; k < n; ++k)
        for (int l = 0; l < L; ++l) buffer[(rows ? rows[k] : k) * L + l] = fibres[l][k];
}

template <class T>
void scatter(const T* buffer, std::int64_t n, const std::int32_t* rows, T* const* fibres) {
    constexpr int L = static_cast<int>(lanes<T>), W = width<T>;
    std::int64_t k = 0;
    for (; k + W <= n; k += W)
        for (int l = 0; l < L; l += W) {
            Vector<T> square[W];
#pragma GCC unroll 16
            for (int i = 0; i < W; ++i) square[i] = load(buffer + (rows ? rows[k + i] : k + i) * L + l);
            transpose<T>(square);
#pragma GCC unroll 16
            for (int i = 0; i < W; ++i) store(fibres[l + i] + k, square[i]);
        }
    for (; k < n; ++k)
        for (int l = 0; l < L; ++l) fibres[l][k] = buffer[(rows ? rows[k] : k) * L + l];
}

template <class T, bool inverse>
void rotate_rows(const Turn<T>* turns, std::int64_t n, const T* from, std::int64_t from_stride, T* to,
                 std::int64_t to_stride, std::int64_t width) {
    constexpr int W = pyattnorg::cpu::PYATTNORG_ISA::width<T>;
    for (const Turn<T>* t = turns; t < turns + n; ++t) {
        T *left = to + t->left * to_stride, *right = to + t->right * to_stride;
        const T* a = t->left_from < 0 ? left : from + t->left_from * from_stride;
        const T* b = t->right_from < 0 ? right : from + t->right_from * from_stride;
        const auto turn = [](const auto& rotation, auto& l, auto& r) {
            if constexpr (inverse)
                math::unmerge(rotation, l, r);
            else
                math::merge(rotation, l, r);
        };
        const math::Rotation<Vector<T>> all{broadcast(t->major), broadcast(t->minor)};
        std::int64_t k = 0;
        for (; k + W <= width; k += W) {
            Vector<T> l = load(a + k), r = load(b + k);
            turn(all, l, r);
            store(left + k, l);
            store(right + k, r);
        }
        for (; k < width; ++k) {
            T l = a[k], r = b[k];
            turn(math::Rotation<T>{t->major, t->minor}, l, r);
            left[k] = l;
            right[k] = r;
        }
    }
}

template <class T>
void rotate(const Turn<T>* turns, std::int64_t n, const T* from, std::int64_t from_stride, T* to,
            std::int64_t to_stride, std::int64_t width, bool inverse) {
    (inverse ? rotate_rows<T, true> : rotate_rows<T, false>)(turns, n, from, from_stride, to, to_stride, width);
}

template <class T>
constexpr Loops<T> table{
    PYATTNORG_ISA_NAME,      PYATTNORG_ROWS,     tile<T>,      dense_features<T>, tree_features<T, T>,
    tree_features<T, float>, row_sums<T>,        distances<T>, first_least<T>,    products<T, T>,
    products<T, float>,      square_and_mask<T>, gather<T>,    scatter<T>,        rotate<T>,
};

}  // namespace

const Loops<float>& float_loops() {
    return table<float>;
}
const Loops<double>& double_loops() {
    return table<double>;
}

}  // namespace pyattnorg::cpu::PYATTNORG_ISA
