// Sums over features for all pairs of points: panel by panel, each gathered and added.
#include "pairs.hpp"

namespace pyattnorg::cuda {
namespace {

template <class T>
struct Plan {
    Pairs<T> pairs;
    std::int64_t run;  // features of a panel
    T* panel;

    Plan(std::int64_t points, std::int64_t features, Term term, std::int64_t split, Work& work)
        : pairs(points, split, term, work),
          run(std::clamp<std::int64_t>(PYATTNORG_PANEL_NUMBERS / pairs.at.pitch, 1,
                                       std::max<std::int64_t>(features, 1))),
          panel(work.take<T>(run * pairs.at.pitch)) {}
};

}  // namespace

std::int64_t pairwise_work(std::int64_t points, std::int64_t features, Term term, std::int64_t split, bool wide) {
    Work work(nullptr);
    if (wide)
        Plan<double>(points, features, term, split, work);
    else
        Plan<float>(points, features, term, split, work);
    return work.bytes();
}

template <class In>
void pairwise(const Strided2<In>& x, const Real<In>* weights, Term term, std::int64_t split, Real<In>* out,
              void* memory, Stream stream) {
    Work work(memory);
    const std::int64_t features = x.shape[1];
    const Plan<Real<In>> plan(x.shape[0], features, term, split, work);
    const Strided3<In> points{x.data, {x.shape[0], 1, features}, {x.stride[0], 0, x.stride[1]}};
    start(plan.pairs, stream);
    for (std::int64_t from = 0; from < features; from += plan.run) {
        const std::int64_t n = std::min(plan.run, features - from);
        gather<In>(points, plan.pairs.at, nullptr, 1, from, n, nullptr, plan.panel, stream);
        add<Real<In>>(plan.pairs, plan.panel, weights ? weights + from : nullptr, n, stream);
    }
    finish(plan.pairs, out, stream);
}

#define PYATTNORG_INSTANTIATE(In) \
    template void pairwise(const Strided2<In>&, const Real<In>*, Term, std::int64_t, Real<In>*, void*, Stream);
PYATTNORG_INSTANTIATE(float)
PYATTNORG_INSTANTIATE(double)
PYATTNORG_INSTANTIATE(math::float16)
PYATTNORG_INSTANTIATE(math::bfloat16)

}  // namespace pyattnorg::cuda
