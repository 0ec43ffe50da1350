// Every kernel without Python, for sanitizers and for other architectures: each instruction set against sums written
// out plainly, any number of threads against one, calls from several threads at once, polls that throw, and forks.
// Prints the value of every kernel, so that machines can be compared; exits with 1 if anything differs.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <random>
#include <stdexcept>
#include <thread>
#include <utility>

#include "../../csrc/kernels.hpp"

#if defined(__SANITIZE_THREAD__)
#define PYATTNORG_TSAN
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define PYATTNORG_TSAN
#endif
#endif

namespace {

namespace cpu = pyattnorg::cpu;
using pyattnorg::HaarStep;
using pyattnorg::HaarTree;
using pyattnorg::Poll;
using pyattnorg::Strided2;
using pyattnorg::Strided3;
using pyattnorg::Term;
using pyattnorg::TreeProgram;

std::atomic<bool> all_well = true;
std::atomic<bool> sets_change = false;  // then squares and products may round either way

void expect(bool condition, const std::string& what) {
    if (condition) return;
    std::printf("FAILED: %s\n", what.c_str());
    all_well = false;
}

std::size_t at(std::int64_t i) {
    return static_cast<std::size_t>(i);
}

// The same numbers on every machine: std::mt19937 is specified to the bit, std::*_distribution are not.
template <class T>
std::vector<T> numbers(std::int64_t n, unsigned seed) {
    std::mt19937 random(seed);
    std::vector<T> out(at(n));
    for (T& value : out) value = static_cast<T>(static_cast<double>(random()) / 2147483648.0 - 1);
    return out;
}

// -- trees ------------------------------------------------------------------------------------------------------------

struct Tree {
    struct Folder {
        std::int32_t parent, leaf;
        std::vector<std::int32_t> children, leaves;
        double scale;  // weight / size
    };
    std::int64_t n;
    std::vector<Folder> folders;  // parents first
    std::vector<std::int32_t> leaf, slot;
    std::vector<std::uint8_t> add;
    std::vector<double> scale;
    std::int64_t n_slots = 0;

    Tree(std::int64_t leaves, unsigned seed) : n(leaves) {
        std::vector<std::int32_t> all(at(n));
        std::iota(all.begin(), all.end(), 0);
        std::mt19937 random(seed);
        grow(-1, all, random);
        play(0, 0, false);
    }

    TreeProgram view() const {
        return {static_cast<std::int64_t>(leaf.size()), n, n_slots, leaf.data(), slot.data(), add.data(), scale.data()};
    }

private:
    void grow(std::int32_t parent, const std::vector<std::int32_t>& leaves, std::mt19937& random) {
        const auto self = static_cast<std::int32_t>(folders.size());
        const double weight = random() % 5 == 0 ? 0 : static_cast<double>(random() % 8 + 1);
        folders.push_back(
            {parent, leaves.size() == 1 ? leaves[0] : -1, {}, leaves, weight / static_cast<double>(leaves.size())});
        if (parent >= 0) folders[at(parent)].children.push_back(self);
        if (leaves.size() == 1) return;
        const std::size_t parts = std::min<std::size_t>(leaves.size(), 2 + random() % 3);
        std::vector<std::vector<std::int32_t>> split(parts);
        for (std::size_t i = 0; i < leaves.size(); ++i) split[i < parts ? i : random() % parts].push_back(leaves[i]);
        for (const auto& part : split) grow(self, part, random);
    }

    void play(std::int32_t folder, std::int32_t in, bool added) {
        n_slots = std::max<std::int64_t>(n_slots, in + 1);
        auto children = folders[at(folder)].children;
        std::stable_sort(children.begin(), children.end(), [this](std::int32_t a, std::int32_t b) {
            return folders[at(a)].leaves.size() > folders[at(b)].leaves.size();
        });
        for (std::size_t c = 0; c < children.size(); ++c) play(children[c], c ? in + 1 : in, c > 0);
        leaf.push_back(folders[at(folder)].leaf);
        slot.push_back(in);
        add.push_back(added);
        scale.push_back(folders[at(folder)].scale);
    }
};

// -- kernels ----------------------------------------------------------------------------------------------------------

// What every kernel makes, as doubles.
using Results = std::vector<std::pair<std::string, std::vector<double>>>;

template <class V>
std::vector<double> doubles(const V& values) {
    return std::vector<double>(values.begin(), values.end());
}

const std::int64_t sizes[][2] = {{1, 1}, {3, 17}, {8, 512}, {33, 100}, {40, 1100}, {17, 0}};

template <class T>
void all_pairwise(Results& results, const std::string& type, int threads, const Poll& poll) {
    for (const auto& [n, m] : sizes) {
        auto x = numbers<T>(n * m, 1);
        for (std::size_t i = 0; i < x.size(); i += 7) x[i] = 0;
        if (n > 2 && m) std::copy_n(x.begin(), m, x.end() - m);  // the last point is the first: a close pair
        std::vector<T> weights = numbers<T>(m, 2);
        for (T& w : weights) w = std::fabs(w);
        std::vector<T> turned(x.size());
        for (std::int64_t i = 0; i < n; ++i)
            for (std::int64_t f = 0; f < m; ++f) turned[at(f * n + i)] = x[at(i * m + f)];
        const Strided2<T> rows{x.data(), {n, m}, {m, 1}}, columns{turned.data(), {n, m}, {1, n}};
        for (const Term term : {Term::l1, Term::squares, Term::masked, Term::products})
            for (const std::int64_t split : {std::int64_t{0}, n / 3})
                for (const T* w : {static_cast<const T*>(nullptr), static_cast<const T*>(weights.data())}) {
                    if (w && term != Term::l1) continue;
                    std::vector<T> out(at(split ? split * (n - split) : n * n)), again(out.size());
                    cpu::pairwise(rows, w, term, split, out.data(), threads, poll);
                    cpu::pairwise(columns, w, term, split, again.data(), threads, poll);
                    const std::string name = "pairwise " + type + " term " + std::to_string(static_cast<int>(term)) +
                                             (w ? " weighted " : " ") + std::to_string(n) + "x" + std::to_string(m) +
                                             " split " + std::to_string(split);
                    expect(sets_change || !out.size() || !std::memcmp(out.data(), again.data(), out.size() * sizeof(T)),
                           name + ": strides change the result");
                    double worst = 0, largest = 0;
                    for (std::int64_t i = 0; i < (split ? split : n); ++i)
                        for (std::int64_t j = split; j < n; ++j) {
                            double sum = 0;
                            for (std::int64_t f = 0; f < m; ++f) {
                                const double a = static_cast<double>(x[at(i * m + f)]);
                                const double b = static_cast<double>(x[at(j * m + f)]);
                                if (term == Term::l1) sum += (w ? static_cast<double>(w[f]) : 1.0) * std::fabs(a - b);
                                if (term == Term::squares) sum += (a - b) * (a - b);
                                if (term == Term::masked) sum += b != 0 ? a * a : 0;
                                if (term == Term::products) sum += a * b;
                            }
                            const double got = static_cast<double>(out[at((j - split) * (split ? split : n) + i)]);
                            worst = std::max(worst, std::fabs(got - sum));
                            largest = std::max(largest, std::fabs(sum));
                        }
                    expect(worst <= (sizeof(T) == 4 ? 1e-5 : 1e-13) * (largest + 1), name + ": wrong");
                    results.emplace_back(name, doubles(out));
                }
    }
}

template <class T>
void all_emd(Results& results, const std::string& type, int threads, const Poll& poll) {
    for (const auto& [n, na, nb] : {std::array<std::int64_t, 3>{1, 1, 1}, {9, 5, 1}, {21, 12, 30}, {35, 40, 9}}) {
        const Tree a(na, 3), b(nb, 4);
        auto x = numbers<T>(n * na * nb, 5);
        if (n > 2) {  // a pair so close that it is summed in double
            std::copy_n(x.begin(), na * nb, x.end() - na * nb);
            x.back() += static_cast<T>(1e-3);
        }
        std::vector<T> out(at(n * n));
        cpu::tree_emd(Strided3<T>{x.data(), {n, na, nb}, {na * nb, nb, 1}}, a.view(), b.view(), out.data(), threads,
                      poll);
        const std::string name = "tree_emd " + type + " " + std::to_string(n);
        double worst = 0, largest = 0;
        for (std::int64_t i = 0; i < n; ++i)
            for (std::int64_t j = 0; j < n; ++j) {
                double sum = 0;
                for (const auto& fa : a.folders)
                    for (const auto& fb : b.folders) {
                        double difference = 0;
                        for (const std::int32_t k : fa.leaves)
                            for (const std::int32_t l : fb.leaves)
                                difference += static_cast<double>(x[at((i * na + k) * nb + l)]) -
                                              static_cast<double>(x[at((j * na + k) * nb + l)]);
                        sum += std::fabs(fa.scale * fb.scale * difference);
                    }
                worst = std::max(worst, std::fabs(sum - static_cast<double>(out[at(i * n + j)])) / (sum + 1e-3));
                largest = std::max(largest, sum);
            }
        expect(worst <= (sizeof(T) == 4 ? 1e-5 : 1e-12), name + ": wrong by " + std::to_string(worst));
        results.emplace_back(name, doubles(out));
    }
}

template <class T>
void all_haar(Results& results, const std::string& type, int threads, const Poll& poll) {
    const std::int64_t shapes[][3] = {{1, 1, 1}, {2, 7, 3}, {1, 300, 70}, {5, 130, 1}, {3, 2000, 9}};
    for (const auto& [outer, n, inner] : shapes) {
        std::mt19937 random(6);
        std::vector<std::int32_t> live(at(n)), size(at(n), 1), slot(at(n));
        std::iota(live.begin(), live.end(), 0);
        std::iota(slot.rbegin(), slot.rend(), 0);
        std::vector<HaarStep> steps;
        while (live.size() > 1) {
            const std::size_t l = random() % live.size();
            const std::int32_t left = live[l];
            live.erase(live.begin() + static_cast<std::ptrdiff_t>(l));
            const std::int32_t right = live[random() % live.size()];
            steps.push_back({left, right, size[at(left)], size[at(right)]});
            size[at(right)] += size[at(left)];
        }
        const auto x = numbers<T>(outer * n * inner, 7);
        std::vector<T> out(x.size()), back(x.size());
        const std::vector<HaarTree> trees{{nullptr, nullptr}, {steps.data(), slot.data()}, {nullptr, nullptr}};
        cpu::haar(x.data(), {outer, n, inner}, trees, false, out.data(), threads, poll);
        back = out;  // and back in place
        cpu::haar(back.data(), {outer, n, inner}, trees, true, back.data(), threads, poll);
        double worst = 0, before = 0, after = 0;
        for (std::size_t i = 0; i < x.size(); ++i) {
            worst = std::max(worst, std::fabs(static_cast<double>(back[i]) - static_cast<double>(x[i])));
            before += static_cast<double>(x[i]) * static_cast<double>(x[i]);
            after += static_cast<double>(out[i]) * static_cast<double>(out[i]);
        }
        const double close = sizeof(T) == 4 ? 1e-5 : 1e-13;
        expect(worst <= close && std::fabs(before / after - 1) <= close, "haar " + type + ": not orthonormal");
        results.emplace_back("haar " + type + " " + std::to_string(n), doubles(out));
    }
}

template <class T>
void all_others(Results& results, const std::string& type, int threads, const Poll& poll) {
    for (const auto& [outer, n, inner] : {std::array<std::int64_t, 3>{1, 1, 1}, {3, 40, 5}, {2, 30, 150}}) {
        const Tree tree(n, 8);
        std::vector<std::int32_t> parent, size, leaf;
        for (const auto& folder : tree.folders) {
            parent.push_back(folder.parent);
            size.push_back(static_cast<std::int32_t>(folder.leaves.size()));
            leaf.push_back(folder.leaf);
        }
        const auto folders = static_cast<std::int64_t>(parent.size());
        const auto x = numbers<T>(outer * n * inner, 9);
        std::vector<T> out(at(outer * folders * inner));
        cpu::folder_averages(x.data(), outer, n, inner, parent.data(), size.data(), leaf.data(), folders, out.data(),
                             threads, poll);
        double worst = 0;
        for (std::int64_t o = 0; o < outer; ++o)
            for (std::int64_t f = 0; f < folders; ++f)
                for (std::int64_t k = 0; k < inner; ++k) {
                    double sum = 0;
                    for (const std::int32_t l : tree.folders[at(f)].leaves)
                        sum += static_cast<double>(x[at((o * n + l) * inner + k)]);
                    sum /= size[at(f)];
                    worst =
                        std::max(worst, std::fabs(sum - static_cast<double>(out[at((o * folders + f) * inner + k)])));
                }
        expect(worst <= (sizeof(T) == 4 ? 1e-6 : 1e-14), "folder_averages " + type + ": wrong");
        results.emplace_back("folder_averages " + type + " " + std::to_string(n), doubles(out));
    }
    for (const std::int64_t n : {0, 1, 15, 16385, 40001}) {
        auto x = numbers<T>(n, 10);
        double magnitudes, squares;
        cpu::norms(x.data(), n, &magnitudes, &squares, threads);
        results.push_back({"norms " + type + " " + std::to_string(n), {magnitudes, squares}});
        if (!n) continue;
        const double middle = static_cast<double>(cpu::median(x.data(), n));
        std::sort(x.begin(), x.end());
        const double plain = (static_cast<double>(x[at(n / 2)]) + static_cast<double>(x[at((n - 1) / 2)])) / 2;
        expect(std::fabs(middle - plain) <= 1e-6, "median " + type + ": wrong");
        results.push_back({"median " + type + " " + std::to_string(n), {middle}});
    }
}

// What the merges of a tree cost, by plain sums.
template <class T>
double tree_cost(std::vector<T> x, std::int64_t n, std::int64_t features, const std::vector<std::int32_t>& merges) {
    std::vector<double> mean(x.begin(), x.end()), size(at(n), 1.0);
    double total = 0;
    for (std::int64_t m = 0; m < n - 1; ++m) {
        const std::int64_t i = merges[at(2 * m)], j = merges[at(2 * m + 1)];
        expect(0 <= i && i < j && j < n && size[at(i)] > 0 && size[at(j)] > 0, "merges name no living folders");
        const double s = size[at(i)], M = size[at(j)];
        double apart = 0;
        for (std::int64_t f = 0; f < features; ++f) {
            double &a = mean[at(i * features + f)], b = mean[at(j * features + f)];
            apart += std::fabs(a - b);
            a = (s * a + M * b) / (s + M);
        }
        total += std::sqrt(s * M / (s + M)) * apart;
        size[at(i)] += M;
        size[at(j)] = 0;
    }
    return total;
}

template <class T>
void all_merges(Results& results, const std::string& type, int threads, const Poll& poll) {
    const double tolerance = sizeof(T) == 4 ? 1e-4 : 1e-12;
    for (const auto& [n, features] : {std::array<std::int64_t, 2>{1, 3}, {2, 0}, {3, 1}, {40, 700}, {75, 1100}}) {
        const std::string name = type + " " + std::to_string(n) + " x " + std::to_string(features);
        const auto x = numbers<T>(n * features, 15);
        auto rows = x;
        std::vector<std::int32_t> merges(at(2 * (n - 1)));
        std::vector<double> costs(at(n - 1)), better_costs(at(n - 1));
        std::vector<T> distances(at(n * n));
        cpu::entropy_tree(rows.data(), n, features, features, distances.data(), merges.data(), costs.data(), threads,
                          poll);
        const double total = std::accumulate(costs.begin(), costs.end(), 0.0);
        expect(std::fabs(total - tree_cost(x, n, features, merges)) <= tolerance * total, "entropy_tree " + name);
        results.emplace_back("entropy_tree " + name, costs);
        auto better = merges;
        cpu::improve_tree(x.data(), n, features, better.data(), better_costs.data(), 100, 1e-6, 0.0, threads, poll);
        const double less = std::accumulate(better_costs.begin(), better_costs.end(), 0.0);
        expect(std::fabs(less - tree_cost(x, n, features, better)) <= tolerance * total, "improve_tree " + name);
        expect(less <= total * (1 + tolerance), "improve_tree " + name + ": worse");
        results.emplace_back("improve_tree " + name, better_costs);
        auto shrunk = x;
        const std::int64_t kept = cpu::shrink_features(shrunk.data(), n, features, 0.33, threads, poll);
        expect(0 <= kept && kept <= features, "shrink_features " + name);
        results.emplace_back("shrink_features " + name, doubles(shrunk));
    }
}

void all_of_doubles(Results& results, int threads, const Poll& poll) {
    for (const auto& [n, m] : {std::array<std::int64_t, 2>{1, 1}, {2, 0}, {13, 3}, {150, 6}}) {
        const auto phi = numbers<double>(n * m, 11);
        std::vector<double> rate(at(m));
        for (std::size_t k = 0; k < rate.size(); ++k) rate[k] = 1 / (1.0 + static_cast<double>(k));
        std::vector<double> found;
        for (const auto& level : cpu::flexible_tree(phi.data(), rate.data(), n, m, 1.0, threads, poll))
            found.insert(found.end(), level.begin(), level.end());
        expect(found.back() == 0, "flexible_tree: no root");
        results.emplace_back("flexible_tree " + std::to_string(n), found);
    }
    for (const auto& [n, known, want] : {std::array<std::int64_t, 3>{4, 0, 4}, {70, 2, 30}, {700, 1, 25}}) {
        auto s = numbers<double>(n * n, 12);
        for (std::int64_t i = 0; i < n; ++i)
            for (std::int64_t j = 0; j < i; ++j) s[at(i * n + j)] = s[at(j * n + i)];
        const std::vector<double> ones(at(n), 1.0);
        auto basis = numbers<double>((want + cpu::krylov_vectors) * n, 13);
        std::fill_n(basis.begin(), known * n, 0.0);
        for (std::int64_t v = 0; v < known; ++v) basis[at(v * n + v)] = 1;
        std::vector<double> projected(at(want * want)), residual(at(cpu::krylov_vectors * cpu::krylov_vectors));
        const std::int64_t half = known + (want - known) / 8 * 4;
        if (half > known)
            cpu::krylov(s.data(), ones.data(), n, basis.data(), known, known, half, projected.data(), want,
                        residual.data(), threads, poll);
        cpu::krylov(s.data(), ones.data(), n, basis.data(), known, half, want, projected.data(), want, residual.data(),
                    threads, poll);
        double worst = 0;
        for (std::int64_t p = 0; p < want; ++p)
            for (std::int64_t q = 0; q < want; ++q) {
                double inner = 0, image = 0;
                for (std::int64_t i = 0; i < n; ++i) {
                    inner += basis[at(p * n + i)] * basis[at(q * n + i)];
                    double sum = 0;
                    for (std::int64_t j = 0; j < n; ++j) sum += s[at(i * n + j)] * basis[at(q * n + j)];
                    image += basis[at(p * n + i)] * sum;
                }
                worst = std::max(worst, std::fabs(inner - (p == q)));
                if (p >= known && q >= known) worst = std::max(worst, std::fabs(image - projected[at(p * want + q)]));
                if (n > 100) q += 5;  // enough
            }
        expect(worst <= 1e-9, "krylov " + std::to_string(n) + ": wrong by " + std::to_string(worst));
        results.emplace_back("krylov " + std::to_string(n), projected);
    }
}

void all_tree_distances(Results& results, int threads, const Poll& poll) {
    for (const std::int64_t n : {1, 2, 50, 700}) {
        std::vector<std::int32_t> order(at(n)), back(at(n)), common(at(n - 1), static_cast<std::int32_t>(n));
        std::iota(order.begin(), order.end(), 0);
        std::iota(back.rbegin(), back.rend(), 0);
        std::vector<std::int32_t> pairs = common;  // leaves two by two, then all
        for (std::size_t p = 0; p < pairs.size(); p += 2) pairs[p] = 2;
        const pyattnorg::OrderedTree flat{order.data(), common.data()}, turned{back.data(), common.data()},
            paired{order.data(), pairs.data()};
        expect(cpu::tree_distance(flat, turned, n, threads, poll) == 0, "tree_distance: order matters");
        const std::int64_t apart = cpu::tree_distance(flat, paired, n, threads, poll);
        expect(apart == n / 2 * 2 * (n - 2) || n < 2, "tree_distance: wrong");
        results.push_back({"tree_distance " + std::to_string(n), {static_cast<double>(apart)}});
    }
}

Results all_kernels(int threads, const Poll& poll = {}) {
    Results results;
    all_pairwise<float>(results, "float", threads, poll);
    all_pairwise<double>(results, "double", threads, poll);
    all_emd<float>(results, "float", threads, poll);
    all_emd<double>(results, "double", threads, poll);
    all_haar<float>(results, "float", threads, poll);
    all_haar<double>(results, "double", threads, poll);
    all_others<float>(results, "float", threads, poll);
    all_others<double>(results, "double", threads, poll);
    all_merges<float>(results, "float", threads, poll);
    all_merges<double>(results, "double", threads, poll);
    all_of_doubles(results, threads, poll);
    all_tree_distances(results, threads, poll);
    return results;
}

bool same(const Results& a, const Results& b) {
    if (a.size() != b.size()) return false;
    for (std::size_t i = 0; i < a.size(); ++i) {
        const auto &x = a[i].second, &y = b[i].second;
        if (x.size() == y.size() && (x.empty() || !std::memcmp(x.data(), y.data(), x.size() * sizeof(double))))
            continue;
        std::printf("%s differs\n", a[i].first.c_str());
        return false;
    }
    return true;
}

void print(const Results& results) {
    for (const auto& [name, values] : results) {
        std::uint64_t bits = 1469598103934665603u;
        double sum = 0;
        for (const double value : values) {
            std::uint64_t word;
            std::memcpy(&word, &value, sizeof word);
            bits = (bits ^ word) * 1099511628211u;
            sum += value;
        }
        std::printf("%-50s %.9g %016llx\n", name.c_str(), sum, static_cast<unsigned long long>(bits));
    }
}

// -- threads ----------------------------------------------------------------------------------------------------------

void from_several_threads(const Results& expected) {
    std::vector<std::thread> callers;
    std::vector<std::uint8_t> equal(4);
    for (std::size_t i = 0; i < equal.size(); ++i)
        callers.emplace_back([&, i] { equal[i] = same(all_kernels(static_cast<int>(i) + 1), expected); });
    for (auto& caller : callers) caller.join();
    expect(std::all_of(equal.begin(), equal.end(), [](std::uint8_t e) { return e; }), "calls at once differ");
}

void instruction_sets_changed_meanwhile() {
    sets_change = true;
    std::thread worker([] { all_kernels(3); });
    const auto sets = cpu::instruction_sets();
    for (int i = 0; i < 300; ++i) {
        cpu::use_instruction_set(sets[at(i) % sets.size()]);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    worker.join();
    sets_change = false;
    cpu::use_instruction_set(sets.back());
}

void polls_that_throw() {
    const std::int64_t n = 600, m = 3000;
    const auto x = numbers<float>(n * m, 14);
    std::vector<float> out(at(n * n));
    for (int asked = 0, again = 0; again < 3; ++again) {
        try {
            for (int i = 0; i < 1000; ++i)  // longer than from poll to poll
                cpu::pairwise<float>(Strided2<float>{x.data(), {n, m}, {m, 1}}, nullptr, Term::l1, 0, out.data(), 3,
                                     [&] {
                                         ++asked;
                                         throw std::runtime_error("stop");
                                     });
            expect(false, "a poll was not asked");
        } catch (const std::runtime_error& e) {
            expect(std::string(e.what()) == "stop" && asked == again + 1, "another exception");
        }
    }
}

void a_poll_that_calls_a_kernel(const Results& expected) {  // as a signal handler may
    const std::int64_t n = 300, m = 2000;
    const auto x = numbers<float>(n * m, 15);
    std::vector<float> out(at(n * n));
    bool equal = false;
    for (int i = 0; i < 1000 && !equal; ++i)
        cpu::pairwise<float>(Strided2<float>{x.data(), {n, m}, {m, 1}}, nullptr, Term::l1, 0, out.data(), 2,
                             [&] { equal = same(all_kernels(2), expected); });
    expect(equal, "a kernel within a poll");
}

#ifndef PYATTNORG_TSAN  // which does not follow the child of several threads
void forks(const Results& expected) {
    const pid_t child = fork();
    if (child == 0) _exit(same(all_kernels(2), expected) ? 0 : 1);
    int status = 0;
    waitpid(child, &status, 0);
    expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a forked child");
}
#endif

}  // namespace

int main() {
    for (const std::string& set : cpu::instruction_sets()) {
        cpu::use_instruction_set(set);
        std::printf("-- %s\n", set.c_str());
        const Results expected = all_kernels(1);
        print(expected);
        for (const int threads : {2, 3, 7}) expect(same(all_kernels(threads), expected), "threads change the result");
        from_several_threads(expected);
        a_poll_that_calls_a_kernel(expected);
#ifndef PYATTNORG_TSAN
        forks(expected);
#endif
    }
    instruction_sets_changed_meanwhile();
    polls_that_throw();
    std::puts(all_well ? "all well" : "FAILED");
    return all_well ? 0 : 1;
}
