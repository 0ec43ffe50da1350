#include "isa.hpp"

#include <atomic>
#include <stdexcept>

#include "../kernels.hpp"

namespace pyattnorg::cpu {

namespace baseline {
const Loops<float>& float_loops();
const Loops<double>& double_loops();
}  // namespace baseline
#ifdef PYATTNORG_X86
namespace avx2 {
const Loops<float>& float_loops();
const Loops<double>& double_loops();
}  // namespace avx2
namespace avx512 {
const Loops<float>& float_loops();
const Loops<double>& double_loops();
}  // namespace avx512
#endif

namespace {

struct Set {
    const Loops<float>& for_float;
    const Loops<double>& for_double;
};

// Best last.
std::vector<Set> available() {
    std::vector<Set> sets{{baseline::float_loops(), baseline::double_loops()}};
#ifdef PYATTNORG_X86
    __builtin_cpu_init();
    const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                            __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
    if (has_avx2) sets.push_back({avx2::float_loops(), avx2::double_loops()});
    // not even the functions that return a table are called where they may not run
    if (has_avx512) sets.push_back({avx512::float_loops(), avx512::double_loops()});
#endif
    return sets;
}

const std::vector<Set>& sets() {
    static const auto& found = *new std::vector<Set>(available());  // never destroyed: threads may outlive main
    return found;
}

std::atomic<const Set*> chosen{nullptr};

const Set& current() {
    if (const Set* set = chosen.load()) return *set;
    return sets().back();
}

}  // namespace

template <>
const Loops<float>& loops<float>() {
    return current().for_float;
}

template <>
const Loops<double>& loops<double>() {
    return current().for_double;
}

std::string instruction_set() {
    return current().for_float.name;
}

std::vector<std::string> instruction_sets() {
    std::vector<std::string> names;
    for (const Set& set : sets()) names.emplace_back(set.for_float.name);
    return names;
}

void use_instruction_set(const std::string& name) {
    for (const Set& set : sets())
        if (name == set.for_float.name) {
            chosen = &set;
            return;
        }
    throw std::invalid_argument("instruction set '" + name + "' does not run here");
}

}  // namespace pyattnorg::cpu
