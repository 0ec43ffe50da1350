// Flexible trees, bottom-up (method 2.3): at level r folders are compared by the mean diffusion distance at time 2^r
// of their points, and joined greedily, nearest first; a group resists to grow by a penalty that halves with its size.
#include <algorithm>
#include <cmath>
#include <limits>

#include "../kernels.hpp"
#include "aligned.hpp"
#include "isa.hpp"
#include "mirror.hpp"
#include "parallel.hpp"
#include "selection.hpp"

namespace pyattnorg::cpu {

template <class T>
T median(const T* values, std::int64_t n) {
    const auto all = [=](const auto& visit) { visit(values, values + n); };
    const Selection<T> selection(all);
    const auto [lower, upper] = selection.ranked(all, (n - 1) / 2);
    return n % 2 ? lower : lower + (upper - lower) / 2;
}

template float median(const float*, std::int64_t);
template double median(const double*, std::int64_t);

namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();

using Labels = std::vector<std::int32_t>;

// Points of a level's folders: folder a holds points[start[a]] ... points[start[a + 1] - 1].
struct Members {
    std::vector<std::int32_t> points, start;
};

Members members(const Labels& labels, std::int64_t n_folders) {
    Members m{std::vector<std::int32_t>(labels.size()),
              std::vector<std::int32_t>(static_cast<std::size_t>(n_folders + 1))};
    for (const std::int32_t a : labels) ++m.start[static_cast<std::size_t>(a + 1)];
    for (std::size_t a = 1; a < m.start.size(); ++a) m.start[a] += m.start[a - 1];
    std::vector<std::int32_t> next(m.start.begin(), m.start.end() - 1);
    for (std::size_t p = 0; p < labels.size(); ++p)
        m.points[static_cast<std::size_t>(next[static_cast<std::size_t>(labels[p])]++)] = static_cast<std::int32_t>(p);
    return m;
}

// distances[a * c + b]: mean over points x of a, y of b of the distance of their scaled coordinates [n, m].
void mean_distances(const std::vector<double>& coordinates, std::int64_t m, const Members& in, std::int64_t c,
                    double* distances, int threads, const Poll& poll) {
    const auto n = static_cast<std::int64_t>(in.points.size());
    // Coordinates in the order of members, one coordinate after the other, so that a row of distances vectorises.
    std::vector<double> by_axis(static_cast<std::size_t>(m * n));
    for (std::int64_t p = 0; p < n; ++p)
        for (std::int64_t k = 0; k < m; ++k)
            by_axis[static_cast<std::size_t>(k * n + p)] =
                coordinates[static_cast<std::size_t>(in.points[static_cast<std::size_t>(p)] * m + k)];
    parallel_for(
        c, threads,
        [&](std::int64_t a) {
            const std::int64_t a0 = in.start[static_cast<std::size_t>(a)],
                               a1 = in.start[static_cast<std::size_t>(a + 1)];
            std::vector<double> sums(static_cast<std::size_t>(n), 0.0);
            for (std::int64_t x = a0; x < a1; ++x)
                loops<double>().distances(by_axis.data(), n, m, x, a1, n, sums.data());
            for (std::int64_t b = a + 1; b < c; ++b) {
                const std::int64_t b0 = in.start[static_cast<std::size_t>(b)],
                                   b1 = in.start[static_cast<std::size_t>(b + 1)];
                double sum = 0;
                for (std::int64_t y = b0; y < b1; ++y) sum += sums[static_cast<std::size_t>(y)];
                distances[a * c + b] = sum / (static_cast<double>(a1 - a0) * static_cast<double>(b1 - b0));
            }
            distances[a * c + a] = infinite;
        },
        poll);
    mirror(distances, c, Triangle::above, threads, poll);
}

// The median of all entries of a symmetric matrix with an infinite diagonal: those above it count twice, then come the
// infinite ones. Where most folders coincide it is 0 and would end the level after one join; the least positive
// distance then stands in, so that all that coincide join.
double typical(const double* distances, std::int64_t c) {
    const auto above = [=](const auto& visit) {
        for (std::int64_t a = 0; a < c; ++a) visit(distances + a * c + a + 1, distances + (a + 1) * c);
    };
    const std::int64_t pairs = c * (c - 1) / 2;
    const Selection<double> selection(above);
    // Of ranks c c / 2 - 1 and c c / 2 among all entries, halved.
    const std::int64_t upper_rank = c * c / 2 / 2, lower_rank = c % 2 ? upper_rank : (c * c / 2 - 1) / 2;
    const auto [lower, next] = lower_rank < pairs ? selection.ranked(above, lower_rank) : std::pair(infinite, infinite);
    const double upper = upper_rank >= pairs ? infinite : upper_rank == lower_rank ? lower : next;
    const double middle = lower + (upper - lower) / 2;
    if (middle > 0) return middle;
    double least = infinite;
    above([&](const double* begin, const double* end) {
        for (const double* d = begin; d < end; ++d)
            if (*d > 0) least = std::min(least, *d);
    });
    return least;
}

// Group of every folder after the greedy joins; groups are numbered by slot, that of the last initiator.
Labels join(double* distances, std::int64_t c, double constant) {
    const auto n = static_cast<std::size_t>(c);
    const double middle = typical(distances, c);
    const double penalty = middle / constant;
    std::vector<double> key(n);
    std::vector<std::int32_t> nearest(n), slot(n), size(n, 1);
    const auto find_nearest = [&](std::size_t a) {
        const double* row = distances + a * n;
        const std::int64_t least = loops<double>().first_least(row, c);
        nearest[a] = static_cast<std::int32_t>(least);
        key[a] = row[least];
    };
    std::vector<std::vector<std::int32_t>> group(n);
    for (std::size_t a = 0; a < n; ++a) {
        slot[a] = static_cast<std::int32_t>(a);
        group[a] = {static_cast<std::int32_t>(a)};
        find_nearest(a);
    }
    std::vector<std::uint8_t> retired(n, 0);
    bool joined = false;
    for (;;) {
        const auto a = static_cast<std::size_t>(loops<double>().first_least(key.data(), c));
        if (retired[a] || (joined && key[a] >= middle)) break;
        const auto b = static_cast<std::size_t>(nearest[a]);
        const auto target = static_cast<std::size_t>(slot[b]);
        const auto s = static_cast<int>(group[target].size());
        if (s > 1 && !(distances[a * n + b] < std::ldexp(penalty, 1 - s))) {
            distances[a * n + b] = infinite;
            find_nearest(a);
            if (key[a] == infinite) retired[a] = 1;  // refused by everyone: it stays alone
            continue;
        }
        for (const std::int32_t member : group[target])
            slot[static_cast<std::size_t>(member)] = static_cast<std::int32_t>(a);
        group[a].insert(group[a].end(), group[target].begin(), group[target].end());
        group[target].clear();
        key[a] = key[b] = infinite;
        retired[a] = retired[b] = 1;
        joined = true;
    }
    Labels number(n, -1), labels(n);
    std::int32_t count = 0;
    for (std::size_t a = 0; a < n; ++a)
        if (!group[a].empty()) number[a] = count++;
    for (std::size_t a = 0; a < n; ++a) labels[a] = number[static_cast<std::size_t>(slot[a])];
    return labels;
}

}  // namespace

std::vector<Labels> flexible_tree(const double* phi, const double* rate, std::int64_t n, std::int64_t m,
                                  double constant, int threads, const Poll& poll) {
    std::vector<Labels> levels(1, Labels(static_cast<std::size_t>(n)));
    for (std::int64_t p = 0; p < n; ++p) levels[0][static_cast<std::size_t>(p)] = static_cast<std::int32_t>(p);
    std::vector<double> coordinates(static_cast<std::size_t>(n * m));
    const auto distances = aligned<double>(n * n);
    std::int64_t c = n;
    for (int r = 0; c > 1; ++r) {
        if (poll) poll();
        const double time = std::ldexp(1.0, r);
        for (std::int64_t k = 0; k < m; ++k) {
            const double scale = m && rate[0] > 0 ? std::pow(rate[k] / rate[0], time) : 0.0;
            for (std::int64_t p = 0; p < n; ++p)
                coordinates[static_cast<std::size_t>(p * m + k)] = scale * phi[p * m + k];
        }
        mean_distances(coordinates, m, members(levels.back(), c), c, distances.get(), threads, poll);
        const bool apart =
            std::any_of(distances.get(), distances.get() + c * c, [](double d) { return d > 0 && d < infinite; });
        const Labels groups = apart ? join(distances.get(), c, constant) : Labels(static_cast<std::size_t>(c), 0);
        Labels next(static_cast<std::size_t>(n));
        for (std::size_t p = 0; p < next.size(); ++p) next[p] = groups[static_cast<std::size_t>(levels.back()[p])];
        c = *std::max_element(next.begin(), next.end()) + 1;
        levels.push_back(std::move(next));
    }
    return levels;
}

}  // namespace pyattnorg::cpu
