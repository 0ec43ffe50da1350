// Memory that begins at a cache line, with no values in it yet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace pyattnorg::cpu {

struct AlignedDelete {
    void operator()(void* p) const { ::operator delete(p, std::align_val_t{64}); }
};

template <class T>
using Aligned = std::unique_ptr<T[], AlignedDelete>;

template <class T>
Aligned<T> aligned(std::int64_t n) {
    return Aligned<T>(static_cast<T*>(::operator new(static_cast<std::size_t>(n) * sizeof(T), std::align_val_t{64})));
}

}  // namespace pyattnorg::cpu
