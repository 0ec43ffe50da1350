// Tree earth mover's distances: features are made a run of outer folders at a time, in panels that are used again.
//
//     leaves [leaves of the run][n_b][points]    gathered, centred
//     outer  [folders of the run][n_b][points]   walked over a's steps; open sums are kept from run to run
//     panel  [folders of the run][folders of b][points]   walked over all of b's steps
//
// and added for all pairs. Close pairs are summed again at the end.
#include "close.hpp"
#include "pairs.hpp"
#include "walk.hpp"

namespace pyattnorg::cuda {
namespace {

template <class T>
struct Plan {
    Pairs<T> pairs;
    std::int64_t most;  // outer folders, and leaves, of a run
    T *centre, *slots, *leaves, *outer, *panel;
    Close close;

    Plan(std::int64_t points, const Walk& a, const Walk& b, Work& work)
        : pairs(points, 0, Term::l1, work),
          most(std::clamp<std::int64_t>(
              PYATTNORG_PANEL_NUMBERS / (pairs.at.pitch * std::max<std::int64_t>(b.n_emitted, 1)), 1, a.n_steps)),
          centre(work.take<T>(a.n_leaves * b.n_leaves)),
          slots(work.take<T>(a.n_slots * b.n_leaves * pairs.at.pitch)),
          leaves(work.take<T>(most * b.n_leaves * pairs.at.pitch)),
          outer(work.take<T>(most * b.n_leaves * pairs.at.pitch)),
          panel(work.take<T>(most * b.n_emitted * pairs.at.pitch)),
          close(points, a, b, work) {}
};

struct Run {
    std::int64_t end, leaves, emitted;
};

// Leaves that come before step s.
std::int64_t leaves_before(const Walk& a, std::int64_t s) {
    const WalkStep& step = a.host[s];
    return step.first + (step.leaf >= 0 ? 0 : step.size);
}

// As many steps from `begin` on as fit.
Run next_run(const Walk& a, std::int64_t begin, std::int64_t most) {
    Run run{begin, 0, 0};
    for (; run.end < a.n_steps; ++run.end) {
        const std::int64_t leaves = run.leaves + (a.host[run.end].leaf >= 0);
        const std::int64_t emitted = run.emitted + (a.host[run.end].scale != 0);
        if (leaves > most || emitted > most) break;
        run.leaves = leaves;
        run.emitted = emitted;
    }
    return run;
}

}  // namespace

std::int64_t tree_emd_work(std::int64_t points, const Walk& a, const Walk& b, bool wide) {
    Work work(nullptr);
    if (wide)
        Plan<double>(points, a, b, work);
    else
        Plan<float>(points, a, b, work);
    return work.bytes();
}

template <class In>
void tree_emd(const Strided3<In>& x, const Walk& a, const Walk& b, Real<In>* out, void* memory, Stream stream) {
    using T = Real<In>;
    Work work(memory);
    const Plan<T> plan(x.shape[0], a, b, work);
    const std::int64_t pitch = plan.pairs.at.pitch, columns = b.n_leaves * pitch;
    centre_of<In>(x, plan.centre, stream);
    start(plan.pairs, stream);
    for (std::int64_t begin = 0; begin < a.n_steps;) {
        const Run run = next_run(a, begin, plan.most);
        if (run.leaves)
            gather<In>(x, plan.pairs.at, a.leaf + leaves_before(a, begin), run.leaves, 0, b.n_leaves, plan.centre,
                       plan.leaves, stream);
        walk<T>(a, begin, run.end, leaves_before(a, begin), plan.leaves, 1, 0, columns, plan.slots, plan.outer, 0,
                stream);
        if (const std::int64_t features = run.emitted * b.n_emitted) {
            walk<T>(b, 0, b.n_steps, -1, plan.outer, run.emitted, columns, pitch, nullptr, plan.panel,
                    b.n_emitted * pitch, stream);
            add<T>(plan.pairs, plan.panel, nullptr, features, stream);
        }
        begin = run.end;
    }
    finish(plan.pairs, out, stream);
    masses<In>(x, plan.centre, a, b, plan.close, stream);
    sum_close_pairs<In>(x, a, b, plan.close, out, stream);
}

#define PYATTNORG_INSTANTIATE(In) \
    template void tree_emd(const Strided3<In>&, const Walk&, const Walk&, Real<In>*, void*, Stream);
PYATTNORG_INSTANTIATE(float)
PYATTNORG_INSTANTIATE(double)
PYATTNORG_INSTANTIATE(math::float16)
PYATTNORG_INSTANTIATE(math::bfloat16)

}  // namespace pyattnorg::cuda
