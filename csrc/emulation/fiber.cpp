// Compiled without -fsanitize=thread: what the scheduler does to its own state is no part of the program under test.
#include "fiber.hpp"

#include <sys/mman.h>

#include <new>

#define PYATTNORG_WEAK __attribute__((weak))
extern "C" {
PYATTNORG_WEAK void* __tsan_get_current_fiber();
PYATTNORG_WEAK void* __tsan_create_fiber(unsigned flags);
PYATTNORG_WEAK void __tsan_switch_to_fiber(void* fiber, unsigned flags);
PYATTNORG_WEAK void __tsan_acquire(void* token);
PYATTNORG_WEAK void __tsan_release(void* token);
PYATTNORG_WEAK void __sanitizer_start_switch_fiber(void** fake_stack, const void* bottom, std::size_t size);
PYATTNORG_WEAK void __sanitizer_finish_switch_fiber(void* fake_stack, const void** bottom, std::size_t* size);
}

namespace pyattnorg::emulation {
namespace {

constexpr unsigned orders_nothing = 1;

struct Scheduler {
    Context context;
    void* tsan = nullptr;
    void* fake_stack = nullptr;
    const void* stack = nullptr;
    std::size_t size = 0;
} scheduler;

void tell_tsan(void* fiber) {
    if (__tsan_switch_to_fiber) __tsan_switch_to_fiber(fiber, orders_nothing);
}

}  // namespace

Ground new_ground() {
    void* stack = mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stack == MAP_FAILED) throw std::bad_alloc();
    return {stack, __tsan_create_fiber ? __tsan_create_fiber(0) : nullptr};
}

void release(void* token) {
    if (__tsan_release) __tsan_release(token);
}
void acquire(void* token) {
    if (__tsan_acquire) __tsan_acquire(token);
}

void become_scheduler() {
    if (__tsan_get_current_fiber) scheduler.tsan = __tsan_get_current_fiber();
}

void as_scheduler(const Fiber& of, bool inside) {
    tell_tsan(inside ? scheduler.tsan : of.ground.tsan);
}

void Fiber::start(const Ground& on, void (*main)()) {
    ground = on;
    make_context(context, on.stack, stack_bytes, main);
}

void Fiber::resume() {
    if (__sanitizer_start_switch_fiber)
        __sanitizer_start_switch_fiber(&scheduler.fake_stack, ground.stack, stack_bytes);
    tell_tsan(ground.tsan);
    switch_context(scheduler.context, context);
    if (__sanitizer_finish_switch_fiber) __sanitizer_finish_switch_fiber(scheduler.fake_stack, nullptr, nullptr);
}

void Fiber::pause() {
    if (__sanitizer_start_switch_fiber) __sanitizer_start_switch_fiber(&fake_stack, scheduler.stack, scheduler.size);
    tell_tsan(scheduler.tsan);
    switch_context(context, scheduler.context);
    if (__sanitizer_finish_switch_fiber) __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
}

void Fiber::entered() {
    if (__sanitizer_finish_switch_fiber) __sanitizer_finish_switch_fiber(nullptr, &scheduler.stack, &scheduler.size);
}

void Fiber::leave() {
    if (__sanitizer_start_switch_fiber) __sanitizer_start_switch_fiber(nullptr, scheduler.stack, scheduler.size);
    tell_tsan(scheduler.tsan);
    switch_context(context, scheduler.context);
}

}  // namespace pyattnorg::emulation
