// Fibers that the sanitizers know of. Their entry points are weak: one object serves every build.
#pragma once

#include <cstddef>

#include "context.hpp"

namespace pyattnorg::emulation {

// What a fiber runs on, kept for the whole process: making them is dear, above all for ThreadSanitizer.
struct Ground {
    void* stack;
    void* tsan;
};
Ground new_ground();
inline constexpr std::size_t stack_bytes = 256 * 1024;

// Orders what came before release(token) before what comes after acquire(token), for ThreadSanitizer.
void release(void* token);
void acquire(void* token);

struct Fiber {
    Context context;
    Ground ground;
    void* fake_stack = nullptr;

    void start(const Ground& on, void (*main)());
    void resume();   // from the scheduler
    void pause();    // back to the scheduler
    void entered();  // first thing in main
    void leave();    // last thing in main; does not return
};

void become_scheduler();                          // the calling thread, before any fiber
void as_scheduler(const Fiber& of, bool inside);  // what is written inside counts as the scheduler's

}  // namespace pyattnorg::emulation
