// Block Krylov spaces of a symmetric matrix, for its eigenvectors of largest magnitude: one pass over the matrix
// multiplies four vectors, which also finds eigenvalues that occur up to four times.
//
//     for every block: images = s block = f * (k (f * block)); orthogonalised against all vectors so far, twice; then
//     among themselves. What was taken out is the projected matrix; what is left is the next block.
//
// Every sum runs in one order, so the result does not depend on threads.
#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <vector>

#include "../kernels.hpp"
#include "isa.hpp"
#include "parallel.hpp"

namespace pyattnorg::cpu {
namespace {

constexpr std::int64_t B = krylov_block;
static_assert(B == krylov_vectors);
constexpr std::int64_t rows_per_task = 32, cells_per_task = 2048,
                       alone = 400000;  // so little is done sooner than threads wake
constexpr double lost = 1e-10;          // a vector that loses so much is made of what it was orthogonalised against

double dot(const double* a, const double* b, std::int64_t n) {
    constexpr std::int64_t ways = 8;
    double sums[ways] = {};
    std::int64_t i = 0;
    for (; i + ways <= n; i += ways)
        for (std::int64_t w = 0; w < ways; ++w) sums[w] += a[i + w] * b[i + w];
    for (; i < n; ++i) sums[0] += a[i] * b[i];
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

// Takes basis[0..have) out of the vector; adds what was taken out to `taken`, if wanted.
void orthogonalise(double* vector, const double* basis, std::int64_t n, std::int64_t have, double* taken, int threads) {
    std::vector<double> share(static_cast<std::size_t>(have));
    if (n * have < alone) threads = 1;
    parallel_for(have, threads,
                 [&](std::int64_t v) { share[static_cast<std::size_t>(v)] = dot(basis + v * n, vector, n); });
    parallel_for((n + cells_per_task - 1) / cells_per_task, threads, [&](std::int64_t task) {
        const std::int64_t begin = task * cells_per_task, end = std::min(n, begin + cells_per_task);
        for (std::int64_t v = 0; v < have; ++v) {
            const double* from = basis + v * n;
            const double s = share[static_cast<std::size_t>(v)];
            for (std::int64_t i = begin; i < end; ++i) vector[i] -= s * from[i];
        }
    });
    if (taken)
        for (std::int64_t v = 0; v < have; ++v) taken[v] += share[static_cast<std::size_t>(v)];
}

// Makes basis[at] a unit vector orthogonal to those before it. Returns its length before, 0 if nothing was left and
// another vector took its place.
double settle(double* basis, std::int64_t n, std::int64_t at, double scale, int threads) {
    double* vector = basis + at * n;
    double length = std::sqrt(dot(vector, vector, n));
    bool replaced = false;
    for (std::int64_t attempt = 0; !(length > lost * scale); ++attempt) {
        if (attempt > at + 16) throw std::runtime_error("the basis is not orthonormal");  // or not even finite
        replaced = true;
        for (std::int64_t i = 0; i < n; ++i)
            vector[i] =
                std::cos(static_cast<double>((at + 1) * (attempt + 2)) * 0.61803398874989 * static_cast<double>(i + 1));
        for (int pass = 0; pass < 2; ++pass) orthogonalise(vector, basis, n, at, nullptr, threads);
        length = std::sqrt(dot(vector, vector, n));
        scale = 1e-3;  // of a vector of length about sqrt(n / 2)
    }
    for (std::int64_t i = 0; i < n; ++i) vector[i] /= length;
    return replaced ? 0 : length;
}

// Length of what was taken out of the image of basis vector `row`.
double taken_length(const double* projected, std::int64_t row, std::int64_t from, std::int64_t to, std::int64_t limit) {
    double sum = 0;
    for (std::int64_t v = from; v < to; ++v) sum += projected[row * limit + v] * projected[row * limit + v];
    return std::sqrt(sum);
}

template <class T>
void multiply(const T* k, std::int64_t n, const double* block, double* images, int threads, const Poll& poll) {
    const auto rows = [&](std::int64_t task) {
        const std::int64_t i0 = task * rows_per_task, count = std::min(rows_per_task, n - i0);
        double out[rows_per_task * B];
        if constexpr (sizeof(T) == sizeof(double))
            loops<double>().products(k + i0 * n, count, block, n, out);
        else
            loops<double>().products_of_float(k + i0 * n, count, block, n, out);
        for (std::int64_t i = 0; i < count; ++i)
            for (std::int64_t r = 0; r < B; ++r) images[r * n + i0 + i] = out[i * B + r];
    };
    parallel_for((n + rows_per_task - 1) / rows_per_task, threads, rows, poll);
}

// x *= f for every vector of a block.
void scale(double* x, const double* f, std::int64_t n) {
    for (std::int64_t r = 0; r < B; ++r)
        for (std::int64_t i = 0; i < n; ++i) x[r * n + i] *= f[i];
}

}  // namespace

template <class T>
void products(const T* k, std::int64_t n, const double* vectors, double* out, int threads, const Poll& poll) {
    multiply(k, n, vectors, out, threads, poll);
}

template <class T>
void krylov(const T* k, const double* f, std::int64_t n, double* basis, std::int64_t known, std::int64_t have,
            std::int64_t want, double* projected, std::int64_t limit, double* residual, int threads, const Poll& poll) {
    std::vector<double> taken(static_cast<std::size_t>(want + B)), scaled(static_cast<std::size_t>(B * n));
    std::fill_n(residual, B * B, 0.0);
    // The next block lies after the basis, orthogonal to it but for the first; it joins, and its images are the next.
    for (bool first = have == known;; first = false) {
        for (std::int64_t r = 0; r < B; ++r) {
            double* vector = basis + (have + r) * n;
            const double length = std::sqrt(dot(vector, vector, n));
            for (int pass = 0; pass < 2; ++pass)
                orthogonalise(vector, first ? basis : basis + have * n, n, first ? have + r : r, nullptr, threads);
            const double image =
                first ? length : std::hypot(length, taken_length(projected, have - B + r, known, have, limit));
            settle(basis, n, have + r, image, threads);
        }
        have += B;
        double* images = basis + have * n;
        std::copy_n(basis + (have - B) * n, B * n, scaled.begin());
        scale(scaled.data(), f, n);
        multiply(k, n, scaled.data(), images, threads, poll);
        scale(images, f, n);
        for (std::int64_t r = 0; r < B; ++r) {
            const std::int64_t column = have - B + r;
            std::fill(taken.begin(), taken.end(), 0.0);
            for (int pass = 0; pass < 2; ++pass) orthogonalise(images + r * n, basis, n, have, taken.data(), threads);
            for (std::int64_t v = known; v < have; ++v)
                projected[column * limit + v] = projected[v * limit + column] = taken[static_cast<std::size_t>(v)];
        }
        if (have < want) continue;
        for (std::int64_t r = 0; r < B; ++r)
            for (std::int64_t q = 0; q < B; ++q) residual[r * B + q] = dot(images + r * n, images + q * n, n);
        return;
    }
}

template void products(const float*, std::int64_t, const double*, double*, int, const Poll&);
template void products(const double*, std::int64_t, const double*, double*, int, const Poll&);
template void krylov(const float*, const double*, std::int64_t, double*, std::int64_t, std::int64_t, std::int64_t,
                     double*, std::int64_t, double*, int, const Poll&);
template void krylov(const double*, const double*, std::int64_t, double*, std::int64_t, std::int64_t, std::int64_t,
                     double*, std::int64_t, double*, int, const Poll&);

}  // namespace pyattnorg::cpu
