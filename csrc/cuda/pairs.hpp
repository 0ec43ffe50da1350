// Panels of features, and sums over them for all pairs of points, tile by tile.
#pragma once

#include "../kernels.hpp"
#include "work.hpp"

namespace pyattnorg::cuda {

inline constexpr std::int64_t pad = 128;  // the side of the largest tile

// Where points stand in a panel: those before `split` first, the others from `rows` on, zeros between.
struct Positions {
    std::int64_t n, split, rows, pitch;

    Positions(std::int64_t points, std::int64_t split_)
        : n(points),
          split(split_),
          rows(blocks_for(split_, pad) * pad),
          pitch(rows + blocks_for(points - split_, pad) * pad) {}
};

// What is summed for which pairs, and what has been summed so far.
template <class T>
struct Pairs {
    Positions at;
    Term term;
    bool symmetric;
    std::int64_t side, tile_columns, n_tiles, most_splits;
    double* sums;  // [n_tiles][side][side]
    T* partial;    // [most_splits][n_tiles][side][side]

    Pairs(std::int64_t points, std::int64_t split, Term which, Work& work);
};

template <class T>
void start(const Pairs<T>& pairs, Stream stream);  // sums to 0
// Adds a panel [features][pitch]; weights [features] or null.
template <class T>
void add(const Pairs<T>& pairs, const T* panel, const T* weights, std::int64_t features, Stream stream);
template <class T>
void finish(const Pairs<T>& pairs, T* out, Stream stream);

// panel[(i * n_b + b), position] = x[p, leaf[i], b0 + b] - centre[leaf[i] * x.shape[2] + b0 + b]; leaf null: i itself,
// centre null: 0.
template <class In>
void gather(const Strided3<In>& x, const Positions& at, const std::int32_t* leaf, std::int64_t n_a, std::int64_t b0,
            std::int64_t n_b, const Real<In>* centre, Real<In>* panel, Stream stream);

}  // namespace pyattnorg::cuda
