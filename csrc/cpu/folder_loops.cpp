#include "folder_loops.hpp"

#include <string_view>

namespace pyattnorg::cpu {

#define PYATTNORG_FOLDER_LOOPS(set)                   \
    namespace set {                                   \
    const FolderLoops<float>& float_folder_loops();   \
    const FolderLoops<double>& double_folder_loops(); \
    }

PYATTNORG_FOLDER_LOOPS(baseline)
#ifdef PYATTNORG_X86
PYATTNORG_FOLDER_LOOPS(avx2)
PYATTNORG_FOLDER_LOOPS(avx512)
#endif

#undef PYATTNORG_FOLDER_LOOPS

template <>
const FolderLoops<float>& folder_loops() {
    [[maybe_unused]] const std::string_view set = loops<float>().name;
#ifdef PYATTNORG_X86
    if (set == "avx2") return avx2::float_folder_loops();
    if (set == "avx512") return avx512::float_folder_loops();
#endif
    return baseline::float_folder_loops();
}

template <>
const FolderLoops<double>& folder_loops() {
    [[maybe_unused]] const std::string_view set = loops<double>().name;
#ifdef PYATTNORG_X86
    if (set == "avx2") return avx2::double_folder_loops();
    if (set == "avx512") return avx512::double_folder_loops();
#endif
    return baseline::double_folder_loops();
}

}  // namespace pyattnorg::cpu
