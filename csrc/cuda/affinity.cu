// What comes after a matrix of products or distances, in one pass over it.
#include "../kernels.hpp"
#include "device.hpp"
#include "work.hpp"

namespace pyattnorg::cuda {
namespace {

constexpr int threads = 256;

template <class T>
__global__ void diagonal_kernel(const T* x, std::int64_t n, double* squares) {
    const std::int64_t i = std::int64_t{blockIdx.x} * threads + threadIdx.x;
    if (i < n) squares[i] = static_cast<double>(x[i * n + i]);
}

template <class T>
__global__ void cosine_kernel(T* x, std::int64_t n, const double* squares) {
    const std::int64_t e = std::int64_t{blockIdx.x} * threads + threadIdx.x;
    if (e >= n * n) return;
    const std::int64_t i = e / n, j = e % n;
    const double lengths = squares[i] * squares[j];
    const double cosine = lengths > 0 ? static_cast<double>(x[e]) / sqrt(lengths) : 0.0;
    x[e] = static_cast<T>(i == j || cosine > 1 ? 1.0 : cosine > 0 ? cosine : 0.0);
}

template <class T>
__global__ void gaussian_kernel(T* x, std::int64_t n, const double* widths) {
    const std::int64_t e = std::int64_t{blockIdx.x} * threads + threadIdx.x;
    if (e >= n * n) return;
    const double a = widths[e / n], b = widths[e % n], square = static_cast<double>(x[e]);
    x[e] = static_cast<T>((exp(-square / (a * a)) + exp(-square / (b * b))) / 2);
}

template <class T>
__global__ void exponential_kernel(T* x, std::int64_t n, double width) {
    const std::int64_t e = std::int64_t{blockIdx.x} * threads + threadIdx.x;
    if (e < n * n) x[e] = static_cast<T>(exp(-static_cast<double>(x[e]) / width));
}

dim3 grid(std::int64_t n) {
    return dim3(static_cast<unsigned>(blocks_for(n, threads)));
}

}  // namespace

template <class T>
void cosines(T* x, std::int64_t n, void* work, Stream stream) {
    auto* squares = static_cast<double*>(work);
    launch(diagonal_kernel<T>, grid(n), dim3(threads), 0, stream, static_cast<const T*>(x), n, squares);
    launch(cosine_kernel<T>, grid(n * n), dim3(threads), 0, stream, x, n, static_cast<const double*>(squares));
}

template <class T>
void gaussian(T* x, std::int64_t n, const double* widths, Stream stream) {
    launch(gaussian_kernel<T>, grid(n * n), dim3(threads), 0, stream, x, n, widths);
}

template <class T>
void exponential(T* x, std::int64_t n, double width, Stream stream) {
    launch(exponential_kernel<T>, grid(n * n), dim3(threads), 0, stream, x, n, width);
}

template void cosines(float*, std::int64_t, void*, Stream);
template void cosines(double*, std::int64_t, void*, Stream);
template void gaussian(float*, std::int64_t, const double*, Stream);
template void gaussian(double*, std::int64_t, const double*, Stream);
template void exponential(float*, std::int64_t, double, Stream);
template void exponential(double*, std::int64_t, double, Stream);

}  // namespace pyattnorg::cuda
