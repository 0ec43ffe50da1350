// What exchanges of neighbouring folders gain (csrc/cpu/interchange.hpp), a panel of features at a time: means of all
// folders from the leaves up, a warp a folder for 32 features, those of one height at once; then a block a folder sums
// over the features of the panel. Sums of panels are added in the order of the stream.
#include "../kernels.hpp"
#include "../math/merging.hpp"
#include "../math/pair.hpp"
#include "device.hpp"
#include "reduce.hpp"
#include "work.hpp"

namespace pyattnorg::cuda {
namespace {

constexpr int columns = 32, lines = 16, threads = 256;

// Means stand at [folder][pitch]; features f0 .. f0 + width of x.
template <class T>
__global__ void __launch_bounds__(columns* lines)
    mean_panel(const T* x, std::int64_t n, std::int64_t features, std::int64_t f0, std::int64_t width,
               const MeanStep* steps, const std::int32_t* first, std::int64_t rounds, T* means, std::int64_t pitch) {
    const std::int64_t c = std::int64_t{blockIdx.x} * columns + threadIdx.x % columns;
    const auto value = [&](std::int32_t v) { return v < n ? x[v * features + f0 + c] : means[(v - n) * pitch + c]; };
    for (std::int64_t round = 0; round < rounds; ++round) {
        for (std::int64_t s = first[round] + threadIdx.x / columns; s < first[round + 1]; s += lines) {
            const MeanStep step = steps[s];
            if (c < width)
                means[step.folder * pitch + c] =
                    static_cast<T>(step.share_a) * value(step.a) + static_cast<T>(step.share_b) * value(step.b);
        }
        __syncthreads();
    }
}

template <class T>
__global__ void __launch_bounds__(threads)
    around_kernel(const T* x, std::int64_t n, std::int64_t features, std::int64_t f0, std::int64_t width,
                  const Near* near, const T* means, std::int64_t pitch, double* out) {
    const Near here = near[blockIdx.x];
    const auto row = [&](std::int32_t v) { return v < n ? x + v * features + f0 : means + (v - n) * pitch; };
    const T *const a = row(here.a), *const b = row(here.b), *const y = row(here.y), *const p = row(here.p);
    const auto wx = static_cast<T>(here.weights.x), wp = static_cast<T>(here.weights.p);
    const auto oa = static_cast<T>(here.weights.other[0]), ob = static_cast<T>(here.weights.other[1]);
    const auto ra = static_cast<T>(here.weights.rest[0]), rb = static_cast<T>(here.weights.rest[1]);
    double cost = 0, first = 0, second = 0;
    for (std::int64_t c = threadIdx.x; c < width; c += threads) {
        const T apart = math::magnitude(a[c] - b[c]);
        const T now = wx * apart + wp * math::magnitude(p[c] - y[c]);
        cost += static_cast<double>(apart);
        first +=
            static_cast<double>(math::gain(now, oa, math::magnitude(a[c] - y[c]), ra, math::magnitude(p[c] - b[c])));
        second +=
            static_cast<double>(math::gain(now, ob, math::magnitude(b[c] - y[c]), rb, math::magnitude(p[c] - a[c])));
    }
    cost = block_sum<double, threads>(cost);
    first = block_sum<double, threads>(first);
    second = block_sum<double, threads>(second);
    if (threadIdx.x > 0) return;
    double* const to = out + 3 * blockIdx.x;
    to[0] = f0 ? to[0] + cost : cost;
    to[1] = f0 ? to[1] + first : first;
    to[2] = f0 ? to[2] + second : second;
}

// Features of a panel.
std::int64_t pitch_of(std::int64_t n, std::int64_t features) {
    const std::int64_t fits = PYATTNORG_PANEL_NUMBERS / std::max<std::int64_t>(n - 1, 1) / columns * columns;
    return std::min(std::max<std::int64_t>(fits, columns), blocks_for(features, columns) * columns);
}

}  // namespace

std::int64_t around_work(std::int64_t n, std::int64_t features, bool wide) {
    const std::int64_t size = wide ? sizeof(double) : sizeof(float);
    return std::max<std::int64_t>((n - 1) * pitch_of(n, features) * size, 1);
}

template <class T>
void around(const T* x, std::int64_t n, std::int64_t features, const MeanStep* steps, const std::int32_t* first,
            std::int64_t rounds, const Near* near, std::int64_t count, double* out, void* work, Stream stream) {
    T* const means = static_cast<T*>(work);
    const std::int64_t pitch = pitch_of(n, features);
    for (std::int64_t f0 = 0; f0 < features; f0 += pitch) {
        const std::int64_t width = std::min(pitch, features - f0);
        launch(mean_panel<T>, dim3(static_cast<unsigned>(blocks_for(width, columns))), dim3(columns * lines), 0, stream,
               x, n, features, f0, width, steps, first, rounds, means, pitch);
        launch(around_kernel<T>, dim3(static_cast<unsigned>(count)), dim3(threads), 0, stream, x, n, features, f0,
               width, near, static_cast<const T*>(means), pitch, out);
    }
}

#define PYATTNORG_INSTANTIATE(T)                                                                                   \
    template void around(const T*, std::int64_t, std::int64_t, const MeanStep*, const std::int32_t*, std::int64_t, \
                         const Near*, std::int64_t, double*, void*, Stream);
PYATTNORG_INSTANTIATE(float)
PYATTNORG_INSTANTIATE(double)

}  // namespace pyattnorg::cuda
