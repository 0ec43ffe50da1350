# The CUDA kernels: _cuda by nvcc, and _emulated by the C++ compiler from the same files.
set(cuda_names affinity around close device_scope folder_averages gather haar masses merging norms pairs pairwise ranked
               shrink_features tree_emd walk)
set(device_bindings csrc/bind/device/module.cpp csrc/bind/device/affinity.cpp csrc/bind/device/entropy_tree.cpp
                    csrc/bind/device/pairwise.cpp csrc/bind/device/trees.cpp csrc/cpu/interchange.cpp)

set(with_cuda ${PYATTNORG_CUDA})
if(PYATTNORG_CUDA STREQUAL "AUTO")
  include(CheckLanguage)
  check_language(CUDA)
  set(with_cuda OFF)
  if(CMAKE_CUDA_COMPILER)
    set(with_cuda ON)
  endif()
  message(STATUS "pyattnorg: CUDA kernels ${with_cuda} (nvcc: ${CMAKE_CUDA_COMPILER})")
endif()

if(with_cuda)
  set(architectures ${CMAKE_CUDA_ARCHITECTURES} $ENV{CUDAARCHS})  # those asked for; CMake has a default of its own
  enable_language(CUDA)
  if(NOT architectures)  # the last with PTX, for what comes after
    if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.8)
      set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
    else()
      set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 100)
    endif()
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  list(TRANSFORM cuda_names PREPEND csrc/cuda/ OUTPUT_VARIABLE cuda_sources)
  list(TRANSFORM cuda_sources APPEND .cu)
  add_library(pyattnorg_cuda STATIC ${cuda_sources})
  set_target_properties(pyattnorg_cuda PROPERTIES POSITION_INDEPENDENT_CODE ON CUDA_RUNTIME_LIBRARY Static
                        CUDA_VISIBILITY_PRESET hidden)
  pybind11_add_module(_cuda NO_EXTRAS ${device_bindings})
  set_target_properties(_cuda PROPERTIES CUDA_RUNTIME_LIBRARY Static)
  target_link_libraries(_cuda PRIVATE pyattnorg_cuda)
  target_compile_definitions(_cuda PRIVATE PYATTNORG_MODULE=_cuda PYATTNORG_VERSION="${PROJECT_VERSION}")
  list(APPEND targets _cuda)
endif()

if(PYATTNORG_EMULATE)
  foreach(name ${cuda_names})
    file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/emulated/${name}.cpp
         CONTENT "#include \"@CMAKE_CURRENT_SOURCE_DIR@/csrc/cuda/${name}.cu\"\n" @ONLY)
    list(APPEND emulated_sources ${CMAKE_CURRENT_BINARY_DIR}/emulated/${name}.cpp)
  endforeach()
  # The scheduler is no part of the program under test (csrc/emulation/fiber.cpp).
  set_source_files_properties(csrc/emulation/fiber.cpp csrc/emulation/scheduler.cpp PROPERTIES
                              COMPILE_OPTIONS "-fno-sanitize=all")
  add_library(pyattnorg_emulated STATIC ${emulated_sources} csrc/emulation/fiber.cpp csrc/emulation/scheduler.cpp)
  set_target_properties(pyattnorg_emulated PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_compile_definitions(pyattnorg_emulated PRIVATE PYATTNORG_PANEL_NUMBERS=16384 PYATTNORG_BLOCKS_WANTED=3
                             PYATTNORG_MULTIPROCESSORS=3)
  target_compile_options(pyattnorg_emulated PRIVATE -Wall -Wextra -Wno-unknown-pragmas
                         $<$<BOOL:${PYATTNORG_WERROR}>:-Werror>)
  if(PYATTNORG_SANITIZE)
    target_compile_options(pyattnorg_emulated PRIVATE -fsanitize=${PYATTNORG_SANITIZE} -fno-omit-frame-pointer -g -O1)
  endif()
  pybind11_add_module(_emulated NO_EXTRAS ${device_bindings})
  target_link_libraries(_emulated PRIVATE pyattnorg_emulated)
  target_compile_definitions(_emulated PRIVATE PYATTNORG_MODULE=_emulated PYATTNORG_VERSION="${PROJECT_VERSION}")
  add_executable(check_cuda tests/cpp/check_cuda.cpp)
  target_link_libraries(check_cuda PRIVATE pyattnorg_emulated pyattnorg_cpu)
  list(APPEND targets _emulated check_cuda)
endif()
