// SSE2 on x86-64, NEON on aarch64: what every machine has.
#define PYATTNORG_ISA baseline
#define PYATTNORG_ISA_NAME "baseline"
#define PYATTNORG_VECTOR_BYTES 16
#if defined(__aarch64__)
#define PYATTNORG_ROWS 5  // 32 registers
#else
#define PYATTNORG_ROWS 2
#endif
#include "loops.inl"

#include "folder_loops.inl"  // after loops.inl, whose vectors it uses
