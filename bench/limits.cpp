// What this machine can do at best, as JSON on standard output: limits [threads...] [--megabytes N] [--seconds S]
//
// Terms of |a - b| summed, multiply-adds and bytes moved per second, for every number of threads asked for. Arithmetic
// is tried in several shapes, with operands in registers and in first-level cache, and the fastest shape counts.
// Compiled for this machine alone (-march=native) and never shipped.
#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>
#ifdef __AVX__
#include <immintrin.h>
#endif

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

// -- arithmetic --------------------------------------------------------------------------------------------------

template <class T, int bytes>
struct VectorOf {
    typedef T type __attribute__((vector_size(bytes)));
};
template <class T, int bytes>
using Vector = typename VectorOf<T, bytes>::type;

#if defined(__AVX512F__)
#define ANY_REGISTER "+v"
#elif defined(__x86_64__)
#define ANY_REGISTER "+x"
#else
#define ANY_REGISTER "+w"
#endif

// The compiler must take `v` for new, so that nothing is moved out of a loop; costs no instruction.
template <class V>
inline void renew(V& v) {
    asm volatile("" : ANY_REGISTER(v));
}

enum class Term { max_fma, max_add, sub_add, fma };

template <Term term, class T, class V>
inline V add_term(V sum, V a, V b, V one) {
    if constexpr (term == Term::max_fma) return sum + one * (a > b ? a : b);
    if constexpr (term == Term::max_add) return sum + (a > b ? a : b);
    if constexpr (term == Term::fma) return sum + a * b;
    const V d = a - b;
    using Int = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
    typedef Int Bits __attribute__((vector_size(sizeof(V))));
    const Bits mask = (~Int{0} >> 1) - Bits{};
    return sum + reinterpret_cast<V>(reinterpret_cast<Bits>(d) & mask);
}

struct Buffers {
    alignas(64) double left[4096];
    alignas(64) double right[4096];
    volatile double sink = 0;
};

constexpr int panel = 256;    // features

// Operands in registers: `count` independent sums. Returns terms per call.
template <Term term, class T, int bytes, int count>
std::int64_t in_registers(Buffers& buffers) {
    using V = Vector<T, bytes>;
    V acc[count] = {}, a = T(1) - V{}, b = T(0.5) - V{}, one = T(1) - V{};
    renew(one);
    for (int i = 0; i < 64 * panel; ++i) {
#pragma GCC unroll 32
        for (int k = 0; k < count; ++k) {
            renew(a);
            acc[k] = add_term<term, T>(acc[k], a, b, one);
        }
    }
    V sum{};
#pragma GCC unroll 32
    for (int k = 0; k < count; ++k) sum += acc[k];
    buffers.sink = static_cast<double>(sum[0]);
    return std::int64_t{64} * panel * count * (bytes / static_cast<int>(sizeof(T)));
}

// The tile of a pairwise sum: `columns` vectors of points against `rows` broadcast points, a panel in first-level cache.
template <Term term, class T, int bytes, int columns, int rows>
std::int64_t in_cache(Buffers& buffers) {
    using V = Vector<T, bytes>;
    constexpr int W = bytes / static_cast<int>(sizeof(T));
    static_assert(panel * columns * bytes <= static_cast<int>(sizeof buffers.left));
    static_assert(panel * rows * sizeof(T) <= sizeof buffers.right);
    const T* left = reinterpret_cast<const T*>(buffers.left);
    const T* right = reinterpret_cast<const T*>(buffers.right);
    V one = T(1) - V{};
    renew(one);
    double total = 0;
    for (int repeat = 0; repeat < 64; ++repeat) {
        V acc[rows][columns] = {};
        for (int f = 0; f < panel; ++f) {
            V a[columns];
#pragma GCC unroll 8
            for (int c = 0; c < columns; ++c) std::memcpy(&a[c], left + (f * columns + c) * W, sizeof(V));
#pragma GCC unroll 32
            for (int r = 0; r < rows; ++r) {
                const V b = right[f * rows + r] - V{};
#pragma GCC unroll 8
                for (int c = 0; c < columns; ++c) acc[r][c] = add_term<term, T>(acc[r][c], a[c], b, one);
            }
        }
        V sum{};
        for (int r = 0; r < rows; ++r)
            for (int c = 0; c < columns; ++c) sum += acc[r][c];
        total += static_cast<double>(sum[0]);
    }
    buffers.sink = total;
    return std::int64_t{64} * panel * rows * columns * W;
}

struct Shape {
    std::string name;
    std::function<std::int64_t(Buffers&)> run;
};

template <Term term, class T>
std::vector<Shape> shapes() {
    return {
        {"registers, 16 bytes x 12", in_registers<term, T, 16, 12>},
#if defined(__AVX__)
        {"registers, 32 bytes x 8", in_registers<term, T, 32, 8>},
        {"registers, 32 bytes x 10", in_registers<term, T, 32, 10>},
        {"registers, 32 bytes x 12", in_registers<term, T, 32, 12>},
        {"cache, 32 bytes 2 x 4", in_cache<term, T, 32, 2, 4>},
        {"cache, 32 bytes 2 x 5", in_cache<term, T, 32, 2, 5>},
        {"cache, 32 bytes 3 x 3", in_cache<term, T, 32, 3, 3>},
#endif
#if defined(__AVX512F__)
        {"registers, 32 bytes x 20", in_registers<term, T, 32, 20>},
        {"registers, 64 bytes x 10", in_registers<term, T, 64, 10>},
        {"registers, 64 bytes x 20", in_registers<term, T, 64, 20>},
        {"cache, 32 bytes 2 x 10", in_cache<term, T, 32, 2, 10>},
        {"cache, 64 bytes 1 x 8", in_cache<term, T, 64, 1, 8>},
        {"cache, 64 bytes 2 x 8", in_cache<term, T, 64, 2, 8>},
#endif
#if !defined(__AVX__)
        {"registers, 16 bytes x 24", in_registers<term, T, 16, 24>},
        {"cache, 16 bytes 4 x 4", in_cache<term, T, 16, 4, 4>},
        {"cache, 16 bytes 2 x 5", in_cache<term, T, 16, 2, 5>},
#endif
    };
}

// Terms per second of all threads together.
double rate(const Shape& shape, int threads, double seconds) {
    std::vector<double> rates(static_cast<std::size_t>(threads));
    std::barrier ready(threads);
    std::vector<std::thread> pool;
    for (double& mine : rates)
        pool.emplace_back([&] {
            auto buffers = std::make_unique<Buffers>();
            // Any bits that are ordinary numbers will do: floats near 1 in both halves of every double.
            for (double* part : {buffers->left, buffers->right}) {
                float* x = reinterpret_cast<float*>(part);
                for (int i = 0; i < 8192; ++i) x[i] = 1.0f + static_cast<float>(i * 37 % 101) / 128.0f;
            }
            shape.run(*buffers);
            ready.arrive_and_wait();
            const auto start = Clock::now();
            std::int64_t terms = 0;
            do terms += shape.run(*buffers);
            while (seconds_since(start) < seconds);
            mine = static_cast<double>(terms) / seconds_since(start);
        });
    for (std::thread& t : pool) t.join();
    double total = 0;
    for (double r : rates) total += r;
    return total;
}

struct Best {
    double rate = 0;
    std::string shape;
};

Best best_of(const std::vector<Shape>& shapes, int threads, double seconds) {
    std::vector<std::pair<double, const Shape*>> tried;
    for (const Shape& shape : shapes) tried.emplace_back(rate(shape, threads, seconds / 20), &shape);
    std::sort(tried.begin(), tried.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    Best best;
    for (std::size_t i = 0; i < 3 && i < tried.size(); ++i)
        for (int repeat = 0; repeat < 4; ++repeat) {
            const double r = rate(*tried[i].second, threads, seconds / 12);
            if (r > best.rate) best = {r, tried[i].second->name};
        }
    return best;
}

// -- memory --------------------------------------------------------------------------------------------------------

enum class Move { read, copy, triad, streaming_triad };

void move(Move kind, double* a, const double* b, const double* c, std::int64_t n, volatile double& sink) {
    switch (kind) {
        case Move::read: {
            Vector<double, 32> sum[8] = {};
            for (std::int64_t i = 0; i + 32 <= n; i += 32)
#pragma GCC unroll 8
                for (int k = 0; k < 8; ++k) {
                    Vector<double, 32> v;
                    std::memcpy(&v, b + i + 4 * k, sizeof v);
                    sum[k] += v;
                }
            for (int k = 1; k < 8; ++k) sum[0] += sum[k];
            sink = sum[0][0];
            return;
        }
        case Move::copy:
            std::memcpy(a, b, static_cast<std::size_t>(n) * sizeof(double));
            return;
        case Move::triad:
            for (std::int64_t i = 0; i < n; ++i) a[i] = b[i] + 3.0 * c[i];
            return;
        case Move::streaming_triad:
#ifdef __AVX__
            for (std::int64_t i = 0; i + 4 <= n; i += 4)
                _mm256_stream_pd(a + i, _mm256_add_pd(_mm256_load_pd(b + i),
                                                      _mm256_mul_pd(_mm256_set1_pd(3.0), _mm256_load_pd(c + i))));
            _mm_sfence();
#endif
            return;
    }
}

struct Free {
    void operator()(double* p) const { std::free(p); }
};

// Bytes per second, counted as the program names them: no line is counted that a store fetches first.
double bytes_per_second(Move kind, int threads, std::int64_t array_bytes, double seconds) {
    const std::int64_t n = array_bytes / 8 / threads / 64 * 64;
    const double moved = 8.0 * static_cast<double>(n) * threads * (kind == Move::read ? 1 : kind == Move::copy ? 2 : 3);
    double best = 0;
    Clock::time_point start;
    std::atomic<bool> more = true;
    const auto begin = Clock::now();
    int rounds = -2;    // the first touches the memory, the second warms up
    std::barrier begins(threads, [&]() noexcept { start = Clock::now(); });
    std::barrier ends(threads, [&]() noexcept {
        if (rounds >= 0) best = std::max(best, moved / seconds_since(start));
        more = ++rounds < 3 || seconds_since(begin) < seconds;
    });
    std::vector<std::thread> pool;
    for (int t = 0; t < threads; ++t)
        pool.emplace_back([&] {
            std::unique_ptr<double[], Free> arrays[3];
            for (auto& array : arrays) {
                array.reset(static_cast<double*>(std::aligned_alloc(64, static_cast<std::size_t>(n) * 8)));
                std::fill_n(array.get(), n, 1.0);
            }
            volatile double sink = 0;
            while (more) {
                begins.arrive_and_wait();
                move(kind, arrays[0].get(), arrays[1].get(), arrays[2].get(), n, sink);
                ends.arrive_and_wait();
            }
        });
    for (std::thread& t : pool) t.join();
    return best;
}

// -- all of it -----------------------------------------------------------------------------------------------------

std::string entry(const char* name, double value, const std::string& how) {
    char text[256];
    std::snprintf(text, sizeof text, "    \"%s\": {\"rate\": %.6g, \"how\": \"%s\"}", name, value, how.c_str());
    return text;
}

template <class T>
void arithmetic(const char* type, int threads, double seconds, std::vector<std::string>& out) {
    const std::pair<const char*, std::vector<Shape>> terms[] = {{"max_fma", shapes<Term::max_fma, T>()},
                                                                {"max_add", shapes<Term::max_add, T>()},
                                                                {"sub_add", shapes<Term::sub_add, T>()},
                                                                {"fma_flops", shapes<Term::fma, T>()}};
    for (const auto& [name, of] : terms) {
        const Best best = best_of(of, threads, seconds);
        const double per = std::strcmp(name, "fma_flops") == 0 ? 2 : 1;
        out.push_back(entry((std::string(name) + "_" + type).c_str(), per * best.rate, best.shape));
    }
}

}    // namespace

int main(int argc, char** argv) {
    std::vector<int> counts;
    std::int64_t megabytes = 128;
    double seconds = 0.5;    // for each figure, about
    for (int i = 1; i < argc; ++i) {
        if (std::strcmp(argv[i], "--megabytes") == 0 && i + 1 < argc)
            megabytes = std::atoll(argv[++i]);
        else if (std::strcmp(argv[i], "--seconds") == 0 && i + 1 < argc)
            seconds = std::atof(argv[++i]);
        else if (std::atoi(argv[i]) >= 1)
            counts.push_back(std::atoi(argv[i]));
        else
            return std::fprintf(stderr, "limits: got '%s', expected a number of threads\n", argv[i]), 2;
    }
    std::string text = "{";
    for (std::size_t i = 0; i < counts.size(); ++i) {
        std::vector<std::string> out;
        arithmetic<float>("float32", counts[i], seconds, out);
        arithmetic<double>("float64", counts[i], seconds, out);
        std::vector<std::pair<const char*, Move>> moves{
            {"read", Move::read}, {"copy", Move::copy}, {"triad", Move::triad}};
#ifdef __AVX__
        moves.emplace_back("streaming_triad", Move::streaming_triad);
#endif
        for (const auto& [name, kind] : moves)
            out.push_back(entry(name, bytes_per_second(kind, counts[i], megabytes << 20, seconds),
                                std::to_string(megabytes) + " MiB an array"));
        text += (i ? ",\n  \"" : "\n  \"") + std::to_string(counts[i]) + "\": {\n";
        for (std::size_t k = 0; k < out.size(); ++k) text += out[k] + (k + 1 < out.size() ? ",\n" : "\n  }");
    }
    std::printf("%s\n}\n", text.c_str());
}
