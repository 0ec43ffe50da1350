// x86-64 with AVX2 and FMA: 2 x 5 accumulators, 2 vectors of the block, one broadcast, one maximum and the factor
// fill the 16 registers.
#define PYATTNORG_ISA avx2
#define PYATTNORG_ISA_NAME "avx2"
#define PYATTNORG_VECTOR_BYTES 32
#define PYATTNORG_ROWS 5
#include "loops.inl"

#include "folder_loops.inl"  // after loops.inl, whose vectors it uses
