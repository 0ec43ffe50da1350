// AVX-512's 32 registers with AVX2's vectors: 2 x 8 accumulators, for processors that split 512-bit operations.
#define PYATTNORG_ISA avx512vl
#define PYATTNORG_ISA_NAME "avx512vl"
#define PYATTNORG_VECTOR_BYTES 32
#define PYATTNORG_ROWS 8
#include "loops.inl"
