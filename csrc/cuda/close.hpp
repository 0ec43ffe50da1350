// Tree distances of points that lie so close that folder sums in T have lost what tells them apart.
#pragma once

#include "../kernels.hpp"
#include "work.hpp"

namespace pyattnorg::cuda {

struct Close {
    static constexpr std::int64_t blocks = 128;
    double* mass_parts;         // [splits][points]
    double* mass;               // [points]
    unsigned* count;            // [1]
    std::int32_t* pairs;        // [n (n - 1) / 2][2]
    double *slots, *row, *run;  // [blocks][n_slots of a][n_b], [blocks][n_b], [blocks][n_b + 1]

    Close(std::int64_t points, const Walk& a, const Walk& b, Work& work);
};

// A constant for every feature, which no distance feels and sums do: the mean of a few points.
template <class In>
void centre_of(const Strided3<In>& x, Real<In>* centre, Stream stream);

// Masses of points, sum over leaves of |x - centre| times the scales of the folders above: what rounding is small to.
template <class In>
void masses(const Strided3<In>& x, const Real<In>* centre, const Walk& a, const Walk& b, const Close& close,
            Stream stream);

// Finds pairs whose distance is small against their masses, and sums them again in double, differences first.
template <class In>
void sum_close_pairs(const Strided3<In>& x, const Walk& a, const Walk& b, const Close& close, Real<In>* out,
                     Stream stream);

}  // namespace pyattnorg::cuda
