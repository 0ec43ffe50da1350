#include "../math/pair.hpp"
#include "close.hpp"
#include "device.hpp"
#include "reduce.hpp"

namespace pyattnorg::cuda {
namespace {

constexpr int threads = 256;
constexpr std::int64_t sampled_points = 16, most_splits = 64, least_cells = 1024;

std::int64_t splits_of(std::int64_t cells) {
    return std::clamp<std::int64_t>(cells / least_cells, 1, most_splits);
}

template <class In>
__global__ void centre_kernel(Strided3<In> x, Real<In>* centre) {
    const std::int64_t cell = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x, n = x.shape[0];
    if (cell >= x.shape[1] * x.shape[2]) return;
    const In* at = x.data + cell / x.shape[2] * x.stride[1] + cell % x.shape[2] * x.stride[2];
    const std::int64_t sampled = n < sampled_points ? n : sampled_points;
    double sum = 0;
    for (std::int64_t s = 0; s < sampled; ++s)
        sum += static_cast<double>(math::number(at[s * n / sampled * x.stride[0]]));
    centre[cell] = static_cast<Real<In>>(sum / static_cast<double>(sampled));
}

// Warps have their lanes along points where memory runs so, and else along cells; parts [splits][points].
template <class In>
__global__ void __launch_bounds__(threads)
    mass_kernel(Strided3<In> x, const Real<In>* centre, const double* scale_a, const double* scale_b, bool along_points,
                std::int64_t splits, double* parts) {
    const std::int64_t n = x.shape[0], n_b = x.shape[2], cells = x.shape[1] * n_b;
    const std::int64_t groups = along_points ? (n + threads - 1) / threads : n;
    const std::int64_t split = blockIdx.x / groups, group = blockIdx.x % groups;
    const std::int64_t per_split = (cells + splits - 1) / splits;
    const std::int64_t begin = split * per_split, end = begin + per_split < cells ? begin + per_split : cells;
    const std::int64_t p = along_points ? group * threads + threadIdx.x : group;
    double sum = 0;
    if (p < n)
        for (std::int64_t cell = along_points ? begin : begin + threadIdx.x; cell < end;
             cell += along_points ? 1 : threads) {
            const std::int64_t a = cell / n_b, b = cell % n_b;
            const Real<In> value = math::number(x.data[p * x.stride[0] + a * x.stride[1] + b * x.stride[2]]);
            sum += static_cast<double>(math::magnitude(value - centre[cell])) * scale_a[a] * scale_b[b];
        }
    if (!along_points) sum = block_sum<double, threads>(sum);
    if (p < n && (along_points || threadIdx.x == 0)) parts[split * n + p] = sum;
}

__global__ void add_parts(const double* parts, std::int64_t n, std::int64_t splits, double* mass) {
    const std::int64_t p = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
    if (p >= n) return;
    double sum = 0;
    for (std::int64_t s = 0; s < splits; ++s) sum += parts[s * n + p];
    mass[p] = sum;
}

}  // namespace

Close::Close(std::int64_t points, const Walk& a, const Walk& b, Work& work)
    : mass_parts(work.take<double>(splits_of(a.n_leaves * b.n_leaves) * points)),
      mass(work.take<double>(points)),
      count(work.take<unsigned>(1)),
      pairs(work.take<std::int32_t>(points * (points - 1))),
      slots(work.take<double>(blocks * a.n_slots * b.n_leaves)),
      row(work.take<double>(blocks * b.n_leaves)),
      run(work.take<double>(blocks * (b.n_leaves + 1))) {}

template <class In>
void centre_of(const Strided3<In>& x, Real<In>* centre, Stream stream) {
    launch(centre_kernel<In>, dim3(static_cast<unsigned>(blocks_for(x.shape[1] * x.shape[2], threads))), dim3(threads),
           0, stream, x, centre);
}

template <class In>
void masses(const Strided3<In>& x, const Real<In>* centre, const Walk& a, const Walk& b, const Close& close,
            Stream stream) {
    const std::int64_t n = x.shape[0], splits = splits_of(x.shape[1] * x.shape[2]);
    const bool along_points = x.stride[0] <= x.stride[2];
    const std::int64_t groups = along_points ? blocks_for(n, threads) : n;
    launch(mass_kernel<In>, dim3(static_cast<unsigned>(groups * splits)), dim3(threads), 0, stream, x, centre,
           a.leaf_scale, b.leaf_scale, along_points, splits, close.mass_parts);
    launch(add_parts, dim3(static_cast<unsigned>(blocks_for(n, threads))), dim3(threads), 0, stream,
           static_cast<const double*>(close.mass_parts), n, splits, close.mass);
}

#define PYATTNORG_INSTANTIATE(In)                                    \
    template void centre_of(const Strided3<In>&, Real<In>*, Stream); \
    template void masses(const Strided3<In>&, const Real<In>*, const Walk&, const Walk&, const Close&, Stream);
PYATTNORG_INSTANTIATE(float)
PYATTNORG_INSTANTIATE(double)
PYATTNORG_INSTANTIATE(math::float16)
PYATTNORG_INSTANTIATE(math::bfloat16)

}  // namespace pyattnorg::cuda
