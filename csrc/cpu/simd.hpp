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

// Clears the sign bit: one operation on any port.
template <class T>
inline Vector<T> magnitude(Vector<T> v) {
    using Bits = typename BitsOf<T>::type;
    const Bits mask = BitsOf<T>::magnitude - Bits{};
    return reinterpret_cast<Vector<T>>(reinterpret_cast<Bits>(v) & mask);
}
