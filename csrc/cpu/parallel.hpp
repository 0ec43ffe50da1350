// A small pool of threads: no OpenMP, which hangs after fork and blinds race detectors.
#pragma once

#include <cstdint>
#include <functional>

#include "../kernels.hpp"

namespace pyattnorg::cpu {

// Runs task(0), ..., task(n - 1), each once, on up to `threads` threads (the caller is one of them), and returns when
// all are done. Tasks are handed out in order as threads become free, so a task must own what it writes. The first
// exception of a task is thrown again here. Safe from several threads at once and after a fork. Between its tasks the
// caller polls, some ten times a second; what the poll throws stops the rest.
void parallel_for(std::int64_t n, int threads, const std::function<void(std::int64_t)>& task, const Poll& poll = {});

}  // namespace pyattnorg::cpu
