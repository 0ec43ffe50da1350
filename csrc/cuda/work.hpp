// The caller's memory, cut into arrays. Laid out over nothing it tells how much is needed.
#pragma once

#include <algorithm>
#include <cstdint>

#ifndef PYATTNORG_PANEL_NUMBERS  // the emulation takes little of both, so that small tests come to every branch
#define PYATTNORG_PANEL_NUMBERS (std::int64_t{1} << 27)
#endif
#ifndef PYATTNORG_BLOCKS_WANTED
#define PYATTNORG_BLOCKS_WANTED 528  // four for each multiprocessor of a large card
#endif
#ifndef PYATTNORG_MULTIPROCESSORS  // of an H100 or H200; a constant, so that sums have the same bytes on every card
#define PYATTNORG_MULTIPROCESSORS 132
#endif

namespace pyattnorg::cuda {

inline std::int64_t blocks_for(std::int64_t n, std::int64_t per_block) {
    return (n + per_block - 1) / per_block;
}

class Work {
public:
    explicit Work(void* base) : base_(static_cast<char*>(base)) {}

    template <class T>
    T* take(std::int64_t count) {
        const std::int64_t at = used_;
        used_ += blocks_for(std::max<std::int64_t>(count, 1) * static_cast<std::int64_t>(sizeof(T)), 256) * 256;
        return base_ ? reinterpret_cast<T*>(base_ + at) : nullptr;
    }
    std::int64_t bytes() const { return used_; }

private:
    char* base_;
    std::int64_t used_ = 0;
};

}  // namespace pyattnorg::cuda
