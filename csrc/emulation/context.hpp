// A stack and where to go on with it. swapcontext asks the kernel for the signal mask on every switch; x86-64 goes
// without, which is several times faster.
#pragma once

#include <cstddef>
#include <cstdint>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace pyattnorg::emulation {

#if defined(__x86_64__)
using Context = void*;  // its stack pointer, what the callee saves lies on the stack

extern "C" void pyattnorg_switch(Context* from, Context to);
asm(R"(
.text
.local pyattnorg_switch
.type pyattnorg_switch, @function
pyattnorg_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size pyattnorg_switch, .-pyattnorg_switch
)");

inline void make_context(Context& context, void* stack, std::size_t bytes, void (*main)()) {
    const auto top = (reinterpret_cast<std::uintptr_t>(stack) + bytes - 64) & ~std::uintptr_t{15};
    auto** at = reinterpret_cast<void**>(top);
    at[0] = reinterpret_cast<void*>(main);  // where `ret` goes, with the stack as after a call
    for (int saved = 1; saved <= 6; ++saved) at[-saved] = nullptr;
    context = at - 6;
}
inline void switch_context(Context& from, Context& to) {
    pyattnorg_switch(&from, to);
}
#else
using Context = ucontext_t;

inline void make_context(Context& context, void* stack, std::size_t bytes, void (*main)()) {
    getcontext(&context);
    context.uc_stack.ss_sp = stack;
    context.uc_stack.ss_size = bytes;
    context.uc_link = nullptr;
    makecontext(&context, main, 0);
}
inline void switch_context(Context& from, Context& to) {
    swapcontext(&from, &to);
}
#endif

}  // namespace pyattnorg::emulation
