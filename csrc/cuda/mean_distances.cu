// Mean diffusion distances between folders: a block a pair of folders, its threads over the pairs of their points.
#include "../kernels.hpp"
#include "../math/pair.hpp"
#include "device.hpp"
#include "reduce.hpp"
#include "work.hpp"

namespace pyattnorg::cuda {
namespace {

constexpr int threads = 64;

__global__ void __launch_bounds__(threads)
    mean_distances_kernel(const double* coordinates, std::int64_t m, const std::int32_t* points,
                          const std::int32_t* start, std::int64_t c, double* out) {
    const math::TilePlace place = math::triangle_place(blockIdx.x);
    const std::int64_t a = place.row, b = place.column;
    if (a == b) {
        if (threadIdx.x == 0) out[a * c + a] = HUGE_VAL;
        return;
    }
    const std::int64_t n_a = start[a + 1] - start[a], n_b = start[b + 1] - start[b];
    double sum = 0;
    for (std::int64_t e = threadIdx.x; e < n_a * n_b; e += threads) {
        const double* x = coordinates + points[start[a] + e / n_b] * m;
        const double* y = coordinates + points[start[b] + e % n_b] * m;
        double square = 0;
        for (std::int64_t k = 0; k < m; ++k) square += (x[k] - y[k]) * (x[k] - y[k]);
        sum += math::square_root(square);
    }
    sum = block_sum<double, threads>(sum);
    if (threadIdx.x == 0) out[a * c + b] = out[b * c + a] = sum / (static_cast<double>(n_a) * static_cast<double>(n_b));
}

}  // namespace

void mean_distances(const double* coordinates, std::int64_t m, const std::int32_t* points, const std::int32_t* start,
                    std::int64_t c, double* out, Stream stream) {
    launch(mean_distances_kernel, dim3(static_cast<unsigned>(c * (c + 1) / 2)), dim3(threads), 0, stream, coordinates,
           m, points, start, c, out);
}

}  // namespace pyattnorg::cuda
