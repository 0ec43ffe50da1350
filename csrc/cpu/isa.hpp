// The inner loops that are compiled once per instruction set, as a table of functions chosen at run time.
#pragma once

#include <cstdint>

namespace pyattnorg::cpu {

// Points are handled in blocks of one cache line: lane l of block b is point b * lanes + l.
template <class T>
inline constexpr std::int64_t lanes = 64 / sizeof(T);

// Features whose terms are summed in T before the sum goes on in double, in stretches of so many.
inline constexpr std::int64_t panel_features = 1024;
inline constexpr std::int64_t stretch = 64;

// Most points that one tile sets against a block.
inline constexpr int most_rows = 16;

// Vectors that one pass over a matrix multiplies.
inline constexpr int krylov_block = 4;

enum class Tile { maxima, differences, squares, products };

// A tree's program with its scales in the computing type (kernels.hpp explains the fields).
template <class T>
struct Program {
    std::int64_t n_steps, n_leaves, n_slots;
    const std::int32_t* leaf;
    const std::int32_t* slot;
    const std::uint8_t* add;
    const T* scale;
    const T* leaf_scale;  // [n_leaves], sum of the scales of the folders that hold a leaf
};

// The folders of a tree with their scales in the computing type, children side by side: those of folder f are
// first[f] ... first[f + 1] - 1, all after f.
template <class T>
struct FolderTable {
    std::int64_t n_folders, n_leaves, n_inner;
    const std::int32_t* inner;  // [n_inner], folders of several leaves, the last first
    const std::int32_t* first;  // [n_folders + 1]
    const std::int32_t* leaf;   // [n_folders], -1 for a folder of several leaves
    const T* scale;             // [n_folders]
    const T* leaf_scale;        // [n_leaves], as a program's
};

// Where the values of one block come from: lane l of (a, b) is at row[l][a * stride_a + b * stride_b]. The values may
// be narrower than the type T that is computed in.
template <class T, class Value = T>
struct BlockSource {
    const Value* row[lanes<T>];
    std::int64_t stride_a, stride_b;
    bool neighbours;  // row[l] is row[0] + l
};

// A rotation of rows `left` and `right` of one array, which are first taken from another where *_from is not negative.
template <class T>
struct Turn {
    std::int32_t left, right, left_from, right_from;
    T major, minor;
};

template <class T>
struct Loops {
    const char* name;
    int rows;  // points a tile takes at once

    // sums[r][lane] += sum over features f of term(left[f][lane], right[r][f * lanes]), r < rows.
    // Tile::maxima turns them into l1 sums with the points' own sums (math/term.hpp).
    void (*tile)(Tile kind, const T* left, const T* const* right, int rows, std::int64_t features, const T* weights,
                 const double* left_sums, const double* right_sums, double* sums);

    // Weighted features f0 <= f < f1 of one block: out[f - f0][lane] = scale[f] (x - centre[f]). Null means 1 and 0.
    void (*dense_features)(const BlockSource<T>& x, std::int64_t f0, std::int64_t f1, const T* centre, const T* scale,
                           T* out);

    // Steps s0 <= s < s1 of the program over a; each folder emits one feature for every folder of b.
    // slots [a.n_slots][b.n_leaves][lanes] lives from call to call.
    // masses[lane] += the features that |x - centre| would have, summed.
    void (*tree_features)(const BlockSource<T>& x, const Program<T>& a, const FolderTable<T>& b, std::int64_t s0,
                          std::int64_t s1, const T* centre, T* slots, double* masses, T* out);
    void (*tree_features_of_float)(const BlockSource<T, float>& x, const Program<T>& a, const FolderTable<T>& b,
                                   std::int64_t s0, std::int64_t s1, const T* centre, T* slots, double* masses, T* out);

    // Per panel of features: sums[panel][lane] in the order of the tiles; norms[lane] += sum of |x|, and
    // norms[lanes + lane] += the square of that sum.
    void (*row_sums)(const T* features, std::int64_t n, double* sums, double* norms);

    // sums[y] += distance of x to y for begin <= y < end; coordinates [m][n].
    void (*distances)(const T* coordinates, std::int64_t n, std::int64_t m, std::int64_t x, std::int64_t begin,
                      std::int64_t end, T* sums);

    // Where the least of n > 0 numbers is, the first where several are equal.
    std::int64_t (*first_least)(const T* x, std::int64_t n);

    // out[row][r] = row . vectors[r] for rows and `krylov_block` vectors of length n, each n apart.
    void (*products)(const T* rows, std::int64_t n_rows, const T* vectors, std::int64_t n, T* out);
    void (*products_of_float)(const float* rows, std::int64_t n_rows, const T* vectors, std::int64_t n, T* out);

    // values become their squares; masks are 1 where they are not 0.
    void (*square_and_mask)(T* values, std::int64_t n, T* masks);

    // Square blocks of n values at a time between `lanes` fibres in memory, each a row, and buffer [n][lanes]; value i
    // of a fibre is buffer row rows[i] (null: i).
    void (*gather)(const T* const* fibres, std::int64_t n, const std::int32_t* rows, T* buffer);
    void (*scatter)(const T* buffer, std::int64_t n, const std::int32_t* rows, T* const* fibres);

    // Rotations one after the other, of rows of `width` numbers: row i of `to` is at to + i * to_stride.
    void (*rotate)(const Turn<T>* turns, std::int64_t n, const T* from, std::int64_t from_stride, T* to,
                   std::int64_t to_stride, std::int64_t width, bool inverse);
};

template <class T>
const Loops<T>& loops();

}  // namespace pyattnorg::cpu
