// Tells callgrind what to count: called by instructions.py through ctypes.
#include <valgrind/callgrind.h>

extern "C" void counting_starts() {
    CALLGRIND_START_INSTRUMENTATION;
    CALLGRIND_ZERO_STATS;
}

extern "C" void counting_ends(const char* name) {
    CALLGRIND_DUMP_STATS_AT(name);
    CALLGRIND_STOP_INSTRUMENTATION;
}
