// x86-64 with AVX-512: one vector is a whole block.
#define PYATTNORG_ISA avx512
#define PYATTNORG_ISA_NAME "avx512"
#define PYATTNORG_VECTOR_BYTES 64
#define PYATTNORG_ROWS 16
#include "loops.inl"

#include "folder_loops.inl"  // after loops.inl, whose vectors it uses
