// Vectors of the instruction set this file is compiled for, by the compiler's own vector types (GCC, Clang): any
// architecture, no library. Include only from loops_*.cpp, inside the namespace of that instruction set.

#ifndef PYATTNORG_VECTOR_BYTES
#error "define PYATTNORG_VECTOR_BYTES before simd.hpp"
#endif

template <class T>
struct VectorOf {
    typedef T type __attribute__((vector_size(PYATTNORG_VECTOR_BYTES)));
};
template <class T>
using Vector = typename VectorOf<T>::type;
template <class T>
inline constexpr int width = PYATTNORG_VECTOR_BYTES / sizeof(T);

template <class T>
inline Vector<T> load(const T* p) {
    Vector<T> v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}

template <class T>
inline void store(T* p, Vector<T> v) {
    __builtin_memcpy(p, &v, sizeof v);
}

template <class T>
inline Vector<T> broadcast(T x) {
    return x - Vector<T>{};
}

inline Vector<double> widened(const double* p) {
    return load(p);
}

inline Vector<double> widened(const float* p) {
    typedef float Half __attribute__((vector_size(PYATTNORG_VECTOR_BYTES / 2)));
    Half half;
    __builtin_memcpy(&half, p, sizeof half);
    return __builtin_convertvector(half, Vector<double>);
}

// Operations with a number in memory. AVX-512 broadcasts it as the operation reads it; a broadcast of its own would
// take a third of the ports that the maxima need (Zen 4), and compilers keep the two apart.
#if defined(__AVX512F__) && PYATTNORG_VECTOR_BYTES == 64
#define PYATTNORG_WITH_MEMORY(name, result, constraint)                            \
    if constexpr (sizeof(T) == sizeof(float))                                      \
        asm(name "ps %2%{1to16%}, %1, %0" : constraint(result) : "v"(a), "m"(*b)); \
    else                                                                           \
        asm(name "pd %2%{1to8%}, %1, %0" : constraint(result) : "v"(a), "m"(*b));  \
    return result

template <class T>
inline Vector<T> larger(Vector<T> a, const T* b) {
    Vector<T> out;
    PYATTNORG_WITH_MEMORY("vmax", out, "=v");
}

template <class T>
inline Vector<T> difference(Vector<T> a, const T* b) {
    Vector<T> out;
    PYATTNORG_WITH_MEMORY("vsub", out, "=v");
}

template <class T>
inline Vector<T> multiply_add(Vector<T> sum, Vector<T> a, const T* b) {
    PYATTNORG_WITH_MEMORY("vfmadd231", sum, "+v");
}
#undef PYATTNORG_WITH_MEMORY
#else
template <class T>
inline Vector<T> larger(Vector<T> a, const T* b) {
    return math::larger(a, broadcast(*b));
}

template <class T>
inline Vector<T> difference(Vector<T> a, const T* b) {
    return a - broadcast(*b);
}

template <class T>
inline Vector<T> multiply_add(Vector<T> sum, Vector<T> a, const T* b) {
    return sum + a * broadcast(*b);
}
#endif

// Compilers take the roots of a vector one by one.
template <class T>
inline Vector<T> square_root(Vector<T> v) {
    Vector<T> out;
#if defined(__x86_64__) && PYATTNORG_VECTOR_BYTES > 16
    if constexpr (sizeof(T) == sizeof(float))
        asm("vsqrtps %1, %0" : "=x"(out) : "x"(v));
    else
        asm("vsqrtpd %1, %0" : "=x"(out) : "x"(v));
#elif defined(__x86_64__)
    if constexpr (sizeof(T) == sizeof(float))
        asm("sqrtps %1, %0" : "=x"(out) : "x"(v));
    else
        asm("sqrtpd %1, %0" : "=x"(out) : "x"(v));
#elif defined(__aarch64__)
    if constexpr (sizeof(T) == sizeof(float))
        asm("fsqrt %0.4s, %1.4s" : "=w"(out) : "w"(v));
    else
        asm("fsqrt %0.2d, %1.2d" : "=w"(out) : "w"(v));
#else
    for (int w = 0; w < width<T>; ++w) out[w] = math::square_root(v[w]);
#endif
    return out;
}

// A one the compiler knows nothing about: acc + 1 * x stays a fused multiply-add, which runs beside the maxima on
// ports that an addition would have to share with them.
template <class T>
inline Vector<T> opaque_one() {
    Vector<T> one = broadcast<T>(T(1));
#if defined(__x86_64__)
    asm("" : "+x"(one));
#elif defined(__aarch64__)
    asm("" : "+w"(one));
#endif
    return one;
}

template <class T>
struct BitsOf;
template <>
struct BitsOf<float> {
    typedef unsigned type __attribute__((vector_size(PYATTNORG_VECTOR_BYTES)));
    static constexpr unsigned magnitude = ~0u >> 1;
};
template <>
struct BitsOf<double> {
    typedef unsigned long long type __attribute__((vector_size(PYATTNORG_VECTOR_BYTES)));
    static constexpr unsigned long long magnitude = ~0ull >> 1;
};

template <class T, class Value>
inline Vector<T> load_as(const Value* p) {
    if constexpr (sizeof(T) == sizeof(Value))
        return load(p);
    else
        return widened(p);
}

// a where b is not 0, else 0.
template <class T>
inline Vector<T> where_not_zero(Vector<T> a, Vector<T> b) {
    using Bits = typename BitsOf<T>::type;
    return reinterpret_cast<Vector<T>>(reinterpret_cast<Bits>(a) & reinterpret_cast<Bits>(b != Vector<T>{}));
}

// Clears the sign bit: one operation on any port.
template <class T>
inline Vector<T> magnitude(Vector<T> v) {
    using Bits = typename BitsOf<T>::type;
    const Bits mask = BitsOf<T>::magnitude - Bits{};
    return reinterpret_cast<Vector<T>>(reinterpret_cast<Bits>(v) & mask);
}

template <class T>
struct IndexOf;
template <>
struct IndexOf<float> {
    using type = int;
};
template <>
struct IndexOf<double> {
    using type = long long;
};

// Swaps the off-diagonal blocks of every 2d x 2d block: doing so for d = 1, 2, 4, ... transposes width x width.
template <class T, int d>
inline void exchange(Vector<T>* rows) {
    typedef typename IndexOf<T>::type Index __attribute__((vector_size(PYATTNORG_VECTOR_BYTES)));
    constexpr int W = width<T>;
    Index upper{}, lower{};
    for (int j = 0; j < W; ++j) {
        upper[j] = j & d ? W + j - d : j;
        lower[j] = j & d ? W + j : j + d;
    }
#pragma GCC unroll 16
    for (int i = 0; i < W; ++i) {
        if (i & d) continue;
        const Vector<T> a = rows[i], b = rows[i + d];
#if defined(__clang__)
        Vector<T> up, low;
        for (int j = 0; j < W; ++j) {
            up[j] = j & d ? b[j - d] : a[j];
            low[j] = j & d ? b[j] : a[j + d];
        }
        rows[i] = up;
        rows[i + d] = low;
#else
        rows[i] = __builtin_shuffle(a, b, upper);
        rows[i + d] = __builtin_shuffle(a, b, lower);
#endif
    }
}

template <class T>
inline void transpose(Vector<T>* rows) {
    exchange<T, 1>(rows);
    if constexpr (width<T> > 2) exchange<T, 2>(rows);
    if constexpr (width<T> > 4) exchange<T, 4>(rows);
    if constexpr (width<T> > 8) exchange<T, 8>(rows);
}
