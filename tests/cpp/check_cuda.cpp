// The CUDA kernels, emulated, against the CPU's: every kernel, number format and order of threads, over shapes that do
// and do not fill a tile. For sanitizers, and for bench/mutants.py, whose seeded bugs it has to notice. Memory is
// exactly as large as the contract says, so that AddressSanitizer sees what lies beyond. Exits with 1 if anything
// differs.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <string>

#include "../../csrc/cuda/around.hpp"
#include "../../csrc/math/pair.hpp"
#include "random_tree.hpp"

namespace {

using namespace pyattnorg;
using test::RandomTree;

int checks = 0, failures = 0;

// ThreadSanitizer looks at what threads do unordered, which is the same in every format; it is slow.
#ifdef __SANITIZE_THREAD__
constexpr bool races_only = true;
#else
constexpr bool races_only = false;
#endif

std::size_t at(std::int64_t i) {
    return static_cast<std::size_t>(i);
}

template <class T>
void close(const std::string& name, const std::vector<T>& got, const std::vector<double>& want, double tolerance) {
    ++checks;
    double worst = got.size() == want.size() ? 0 : INFINITY, largest = 0;
    for (const double w : want) largest = std::max(largest, std::isfinite(w) ? std::fabs(w) : 0);
    for (std::size_t i = 0; i < std::min(got.size(), want.size()); ++i) {
        if (static_cast<double>(got[i]) == want[i]) continue;
        const double error = std::fabs(static_cast<double>(got[i]) - want[i]) / (largest > 0 ? largest : 1);
        worst = std::isnan(error) ? INFINITY : std::max(worst, error);  // NaN is an error like any other
    }
    if (worst <= tolerance) return;
    ++failures;
    std::printf("FAILED %s: error %g\n", name.c_str(), worst);
}

// Numbers that float16 and bfloat16 hold, so that all formats have the same results.
template <class In>
In narrow(double x) {
    if constexpr (sizeof(In) >= sizeof(float)) {
        return static_cast<In>(x);
    } else {
        const auto value = static_cast<float>(x);
        std::uint32_t bits;
        std::memcpy(&bits, &value, sizeof(bits));
        if constexpr (std::is_same_v<In, math::bfloat16>) return {static_cast<std::uint16_t>(bits >> 16)};
        if (bits << 1 == 0) return {static_cast<std::uint16_t>(bits >> 16)};
        return {static_cast<std::uint16_t>((bits >> 16 & 0x8000u) | ((bits >> 23 & 255u) - 112) << 10 |
                                           (bits >> 13 & 1023u))};
    }
}

struct Numbers {
    std::vector<double> wide;
    explicit Numbers(std::int64_t n, unsigned seed) : wide(at(n)) {
        std::mt19937 random(seed);
        for (double& x : wide) x = static_cast<double>(random() % 255) / 64 - 2;  // 8 significant bits
    }
    template <class In>
    std::vector<In> as() const {
        std::vector<In> out;
        for (const double x : wide) out.push_back(narrow<In>(x));
        return out;
    }
};

std::unique_ptr<char[]> work(std::int64_t bytes) {
    std::unique_ptr<char[]> memory(new char[at(bytes)]);
    std::memset(memory.get(), 0xff, at(bytes));
    return memory;
}

template <class T>
std::vector<T> unset(std::int64_t n) {
    return std::vector<T>(at(n), std::numeric_limits<T>::quiet_NaN());
}

template <class T>
constexpr double tolerance = sizeof(T) == sizeof(float) ? 1e-6 : 1e-13;

template <class In>
void pairwise(const std::string& type) {
    using T = cuda::Real<In>;
    for (const auto& [n, m] : {std::pair{1, 1}, {3, 0}, {17, 33}, {66, 150}, {130, 70}, {129, 5}}) {
        const Numbers numbers(std::int64_t{n} * m, 1), ones(m, 2);
        const std::vector<In> x = numbers.as<In>();
        std::vector<T> weights;
        for (const double w : ones.wide) weights.push_back(static_cast<T>(std::fabs(w)));
        const std::vector<double> wide_weights(weights.begin(), weights.end());
        const bool turned = n % 2 == 0;  // as the transpose of [m, n]
        const std::int64_t rows = turned ? 1 : m, columns = turned ? n : 1;
        for (const Term term : {Term::l1, Term::squares, Term::masked, Term::products})
            for (const std::int64_t split : {std::int64_t{0}, std::int64_t{n / 3}})
                for (const bool weighted : {false, true}) {
                    if (weighted && term != Term::l1) continue;
                    const std::int64_t size = split ? split * (n - split) : std::int64_t{n} * n;
                    auto got = unset<T>(size);
                    std::vector<double> want(at(size));
                    const auto memory = work(cuda::pairwise_work(n, m, term, split, sizeof(T) == sizeof(double)));
                    cuda::pairwise<In>({x.data(), {n, m}, {rows, columns}}, weighted ? weights.data() : nullptr, term,
                                       split, got.data(), memory.get(), nullptr);
                    cpu::pairwise<double>({numbers.wide.data(), {n, m}, {rows, columns}},
                                          weighted ? wide_weights.data() : nullptr, term, split, want.data(), 1, {});
                    close("pairwise " + type + " term " + std::to_string(static_cast<int>(term)) + " " +
                              std::to_string(n) + "x" + std::to_string(m),
                          got, want, tolerance<T>);
                }
    }
}

template <class In>
void trees(const std::string& type) {
    using T = cuda::Real<In>;
    for (const auto& [n, a, b] : {std::array{1, 1, 1}, {5, 9, 4}, {70, 12, 33}, {9, 40, 1}, {6, 3, 150}}) {
        const RandomTree ta(a, 3), tb(b, 4);
        const std::string name = type + " " + std::to_string(n) + "x" + std::to_string(a) + "x" + std::to_string(b);
        Numbers numbers(std::int64_t{n} * a * b, 5);
        if (n > 4)  // two points that lie as close as can be, and two that are one
            for (std::int64_t k = 0; k < std::int64_t{a} * b; ++k) {
                numbers.wide[at(k + a * b)] = numbers.wide[at(k)];
                numbers.wide[at(k + 3 * a * b)] = numbers.wide[at(k + 2 * a * b)];
            }
        if (n > 4) numbers.wide[0] += 1.0 / 64;
        const std::vector<In> x = numbers.as<In>();
        auto got = unset<T>(std::int64_t{n} * n);
        std::vector<double> want(got.size());
        const auto memory = work(cuda::tree_emd_work(n, ta.device(), tb.device(), sizeof(T) == sizeof(double)));
        const std::int64_t s0 = std::int64_t{a} * b;
        cuda::tree_emd<In>({x.data(), {n, a, b}, {s0, b, 1}}, ta.device(), tb.device(), got.data(), memory.get(),
                           nullptr);
        cpu::tree_emd<double>({numbers.wide.data(), {n, a, b}, {s0, b, 1}}, ta.program(), tb.program(), want.data(), 1,
                              {});
        close("tree_emd " + name, got, want, tolerance<T>);
        if (n > 4) close("tree_emd of twins " + name, std::vector{got[1]}, {want[1]}, 1e-5);

        auto averages = unset<T>(std::int64_t{n} * static_cast<std::int64_t>(ta.parent.size()) * b);
        std::vector<double> exact(averages.size());
        cuda::folder_averages<In>(x.data(), n, b, ta.device(), averages.data(), nullptr);
        cpu::folder_averages<double>(numbers.wide.data(), n, a, b, ta.parent.data(), ta.size.data(), ta.leaf_of.data(),
                                     static_cast<std::int64_t>(ta.parent.size()), exact.data(), 1, {});
        close("folder_averages " + name, averages, exact, tolerance<T>);
    }
}

// Numbers with all their digits, far from 0, and pairs that differ in the last of them: folder sums in float alone are
// wrong.
void twins() {
    const std::int64_t n = 6, a = 20, b = 15;
    const RandomTree ta(a, 3), tb(b, 4);
    std::mt19937 random(12);
    std::vector<float> x(at(n * a * b));
    for (float& value : x) value = 1000 + static_cast<float>(random() % 100003) / 33333;
    for (std::int64_t k = 0; k < a * b; ++k) x[at(k + a * b)] = x[at(k)];
    x[at(a * b + 7)] = std::nextafter(x[7], 2000.0f);
    x[at(a * b + 133)] = std::nextafter(x[133], 0.0f);
    const std::vector<double> wide(x.begin(), x.end());
    auto got = unset<float>(n * n);
    std::vector<double> want(got.size());
    const auto memory = work(cuda::tree_emd_work(n, ta.device(), tb.device(), false));
    cuda::tree_emd<float>({x.data(), {n, a, b}, {a * b, b, 1}}, ta.device(), tb.device(), got.data(), memory.get(),
                          nullptr);
    cpu::tree_emd<double>({wide.data(), {n, a, b}, {a * b, b, 1}}, ta.program(), tb.program(), want.data(), 1, {});
    close("tree_emd, far from 0", got, want, 1e-5);
    close("tree_emd of near twins, far from 0", std::vector{got[1]}, {want[1]}, 1e-5);
}

// Tiles of a triangle, also where double no longer holds their number.
void triangle() {
    for (const std::int64_t column : {std::int64_t{0}, std::int64_t{1}, std::int64_t{2}, std::int64_t{94906267},
                                      std::int64_t{1000000007}, std::int64_t{2000000011}}) {
        const std::int64_t first = column * (column + 1) / 2;
        for (const std::int64_t row : {std::int64_t{0}, column}) {
            ++checks;
            const math::TilePlace place = math::triangle_place(first + row);
            if (place.row == row && place.column == column) continue;
            ++failures;
            std::printf("FAILED triangle, column %lld\n", static_cast<long long>(column));
        }
    }
}

template <class In>
void haar(const std::string& type) {
    using T = cuda::Real<In>;
    for (const auto& [outer, n, inner] :
         {std::array{1, 1, 1},
          {40, 7, 1},
          {3, 33, 5},
          {2, 20, 70},
          {1, 1500, 3},
          {1, 1500, 19},
          {5, 3500, 1},
          {1, 8000, 9},
          {3, 20000, 1},
          {1, 26000, 1}}) {  // blocks of 32 columns down to one, and what does not fit into shared memory
        const RandomTree tree(n, 6);
        const Numbers numbers(std::int64_t{outer} * n * inner, 7);
        const std::vector<In> x = numbers.as<In>();
        std::vector<std::int32_t> first;
        const auto turns = tree.turns<T>(first);
        const cuda::HaarRounds<T> rounds{n, static_cast<std::int64_t>(first.size()) - 1, turns.data(), first.data(),
                                         tree.haar_slot.data()};
        const auto memory = work(cuda::haar_work(outer, n, inner, sizeof(T) == sizeof(double)));
        for (const bool inverse : {false, true}) {
            auto got = unset<T>(static_cast<std::int64_t>(x.size()));
            std::vector<double> want(x.size());
            cuda::haar<In>(x.data(), outer, inner, rounds, inverse, got.data(), memory.get(), nullptr);
            cpu::haar<double>(numbers.wide.data(), {outer, n, inner},
                              {{nullptr, nullptr}, tree.haar_tree(), {nullptr, nullptr}}, inverse, want.data(), 1, {});
            close("haar " + type + " " + std::to_string(n), got, want, tolerance<T>);
            if constexpr (sizeof(In) == sizeof(T)) {
                std::vector<T> there = x;
                cuda::haar<In>(there.data(), outer, inner, rounds, inverse, there.data(), memory.get(), nullptr);
                close("haar in place " + type + " " + std::to_string(n), there, want, tolerance<T>);
            }
        }
    }
}

template <class In>
void norms(const std::string& type) {
    for (const std::int64_t n : {0, 1, 1000, 140000}) {
        const Numbers numbers(n, 8);
        const std::vector<In> x = numbers.as<In>();
        auto got = unset<double>(2);
        std::vector<double> want(2);
        const auto memory = work(cuda::norms_work(n));
        cuda::norms<In>(x.data(), n, got.data(), memory.get(), nullptr);
        cpu::norms<double>(numbers.wide.data(), n, want.data(), want.data() + 1, 1);
        close("norms " + type, got, want, 1e-14);
    }
}

template <class T>
void matrices(const std::string& type) {
    const std::int64_t n = 37;
    const Numbers numbers(n * n, 9);
    const auto x = numbers.as<T>();
    std::vector<double> cosines(at(n * n)), gaussians(cosines.size()), exponentials(cosines.size()), widths(at(n));
    auto positive = x;
    for (T& value : positive) value = std::fabs(value);
    for (std::int64_t i = 0; i < n; ++i) widths[at(i)] = 1 + static_cast<double>(i) / 8;
    for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t j = 0; j < n; ++j) {
            const auto d = static_cast<double>(positive[at(i * n + j)]), a = widths[at(i)], b = widths[at(j)];
            const double lengths = static_cast<double>(x[at(i * n + i)]) * static_cast<double>(x[at(j * n + j)]);
            const double cosine = lengths > 0 ? static_cast<double>(x[at(i * n + j)]) / std::sqrt(lengths) : 0;
            cosines[at(i * n + j)] = i == j ? 1 : std::clamp(cosine, 0.0, 1.0);
            gaussians[at(i * n + j)] = (std::exp(-d / a / a) + std::exp(-d / b / b)) / 2;
            exponentials[at(i * n + j)] = std::exp(-d / 1.5);
        }
    auto got = x;
    const auto memory = work(n * static_cast<std::int64_t>(sizeof(double)));
    cuda::cosines(got.data(), n, memory.get(), nullptr);
    close("cosines " + type, got, cosines, tolerance<T>);
    got = positive;
    cuda::gaussian(got.data(), n, widths.data(), nullptr);
    close("gaussian " + type, got, gaussians, tolerance<T>);
    got = positive;
    cuda::exponential(got.data(), n, 1.5, nullptr);
    close("exponential " + type, got, exponentials, tolerance<T>);

    for (const std::int64_t count : {1, 2, 37, 1369}) {
        auto sorted = std::vector<T>(x.begin(), x.begin() + count);
        std::sort(sorted.begin(), sorted.end());
        for (const std::int64_t rank : {std::int64_t{0}, (count - 1) / 2, count - 1}) {
            std::vector<T> found(2);
            const auto room = work(cuda::ranked_work());
            cuda::ranked(x.data(), count, rank, found.data(), room.get(), nullptr);
            close(
                "ranked " + type, found,
                {static_cast<double>(sorted[at(rank)]), static_cast<double>(sorted[at(std::min(rank + 1, count - 1))])},
                0);
        }
    }
}

// From a chain of the points as they came, which is far from the best tree.
template <class T>
void exchanges(const std::string& name, std::int64_t n, std::int64_t m, const Numbers& numbers) {
    std::vector<std::int32_t> merges, best;
    for (std::int32_t i = 1; i < n; ++i) merges.insert(merges.end(), {0, i});
    best = merges;
    std::vector<double> costs(at(n - 1)), got(at(n - 1));
    const int sweeps = races_only ? 2 : 5;
    cpu::improve_tree<double>(numbers.wide.data(), n, m, best.data(), costs.data(), sweeps, 1e-9, 0, 1, {});
    const auto x = numbers.as<T>();
    cpu::Interchange tree(merges.data(), n);
    const auto memory = work(cuda::around_work(n, m, sizeof(T) == sizeof(double)));
    for (int sweep = 0;; ++sweep) {
        const cuda::AroundPlan plan(tree);
        const auto count = static_cast<std::int64_t>(plan.near.size());
        auto sums = m ? unset<double>(3 * count) : std::vector<double>(at(3 * count));
        cuda::around<T>(x.data(), n, m, plan.steps.data(), plan.first.data(),
                        static_cast<std::int64_t>(plan.first.size()) - 1, plan.near.data(), count, sums.data(),
                        memory.get(), nullptr);
        std::vector<cpu::Around> found(at(count));
        std::memcpy(found.data(), sums.data(), sums.size() * sizeof(double));
        tree.learn(found);
        if (sweep == sweeps || !tree.exchange(1e-9, 0)) break;
    }
    std::vector<std::int32_t> better(merges.size());
    tree.give(better.data(), got.data());
    close("exchanges " + name, better, {best.begin(), best.end()}, 0);
    close("costs of exchanges " + name, got, costs, tolerance<T>);
}

// Least-entropy trees: merges, weights of features, exchanges.
template <class T>
void merging(const std::string& type) {
    for (const auto& [n, m] : {std::pair{1, 3}, {2, 1}, {3, 0}, {17, 40}, {40, 600}, {70, 150}, {135, 33}}) {
        const Numbers numbers(std::int64_t{n} * m, 13);
        const std::int64_t stride = m + n % 3;
        std::vector<T> x(at(n * stride), std::numeric_limits<T>::quiet_NaN());
        std::vector<double> wide = numbers.wide, apart(at(std::int64_t{n} * n)), costs(at(n - 1));
        for (std::int64_t e = 0; e < std::int64_t{n} * m; ++e)
            x[at(e / m * stride + e % m)] = static_cast<T>(wide[at(e)]);
        std::vector<std::int32_t> merges(at(2 * (n - 1))), found(merges.size(), -1);
        cpu::entropy_tree<double>(wide.data(), n, m, m, apart.data(), merges.data(), costs.data(), 1, {});
        const std::vector<T> distances(apart.begin(), apart.end());
        auto got = unset<double>(n - 1);
        std::int64_t left = -1;
        const auto memory = work(cuda::merge_work(n, sizeof(T) == sizeof(double)));
        cuda::merge_start<T>(distances.data(), n, memory.get(), nullptr);
        for (int more = 0; left != 1 && more < n; ++more)
            cuda::merge_passes<T>(x.data(), n, m, stride, 4, found.data(), got.data(), &left, memory.get(), nullptr);
        const std::string name = type + " " + std::to_string(n) + "x" + std::to_string(m);
        close("merges " + name, found, {merges.begin(), merges.end()}, 0);
        close("costs of merges " + name, got, costs, tolerance<T>);
        if (n > 1) exchanges<T>(name, n, m, numbers);
    }
}

template <class T>
void shrinking(const std::string& type) {
    for (const auto& [n, m] : {std::pair{1, 5}, {9, 40}, {6, 1100}}) {
        const Numbers numbers(std::int64_t{n} * m, 14);
        std::vector<T> x = numbers.as<T>();
        for (std::int64_t e = 0; e < std::int64_t{n} * m; ++e) x[at(e)] *= static_cast<T>(e % m % 7);
        std::vector<T> shrunk = x, factors(at(m));
        const std::int64_t kept = n > 1 ? cpu::shrink_features<T>(shrunk.data(), n, m, 9.0, 1, {}) : 0;
        std::vector<std::int32_t> columns(at(m), -1);
        std::int64_t count = -1;
        const auto memory = work(cuda::weigh_features_work(m, sizeof(T) == sizeof(double)));
        cuda::weigh_features<T>(x.data(), n, m, 9.0, columns.data(), factors.data(), &count, memory.get(), nullptr);
        close("kept features " + type, std::vector{static_cast<double>(count)}, {static_cast<double>(kept)}, 0);
        if (!count) continue;
        cuda::close_gaps<T>(x.data(), n, m, columns.data(), factors.data(), count, nullptr);
        std::vector<T> got;
        std::vector<double> want;
        for (std::int64_t e = 0; e < n * kept; ++e) {
            got.push_back(x[at(e / kept * m + e % kept)]);
            want.push_back(static_cast<double>(shrunk[at(e / kept * m + e % kept)]));
        }
        close("shrunk features " + type, got, want, tolerance<T>);
    }
}

template <class In>
void all(const std::string& type) {
    pairwise<In>(type);
    trees<In>(type);
    haar<In>(type);
    norms<In>(type);
}

}  // namespace

// Arguments: the orders of threads to try; all of them without any.
int main(int count, char** arguments) {
    std::vector<std::string> orders(arguments + 1, arguments + count);
    if (orders.empty()) orders = {"forward", "backward", "shuffled"};
    for (const std::string& order : orders) {
        setenv("PYATTNORG_EMULATED_ORDER", order.c_str(), 1);
        all<float>("float");
        if (order == orders.front() && !races_only) {  // the other formats share these loops
            all<double>("double");
            all<math::float16>("float16");
            all<math::bfloat16>("bfloat16");
            merging<double>("double");
            shrinking<double>("double");
        }
        matrices<float>("float");
        matrices<double>("double");
        merging<float>("float");
        shrinking<float>("float");
        twins();
        triangle();
    }
    std::printf("%d passed, %d failed\n", checks - failures, failures);
    return failures != 0;
}
