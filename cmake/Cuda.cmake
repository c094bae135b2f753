# libtrainrun_cuda.so: what the program opens where there is a GPU (runner/device/cuda). Host code alone, so no nvcc; it is
# built wherever NVIDIA's headers are: beside LibTorch, where tools/setup saw a GPU; among the tests' Python packages,
# so in CI; or of an installed CUDA 13 toolkit. Nothing else links it, nor anything of NVIDIA's.

set(TRAINRUN_CUDA_INCLUDES "" CACHE STRING "folders with cuda_runtime_api.h, cublas_v2.h, nccl.h, …; empty: look for them")

# The NCCL that this LibTorch was built with. c10d's classes contain its structs, which grow from version to version: with the
# header of another one, our code and LibTorch's would disagree about where their members lie.
file(STRINGS "${PROJECT_SOURCE_DIR}/tools/requirements/cuda-${TRAINRUN_LIBTORCH_RELEASE}.lock" nccl_version REGEX "^nvidia-nccl-")
string(REGEX REPLACE "^.*==([0-9.]+).*$" "\\1" nccl_version "${nccl_version}")

# _trainrun_nccl_version(VARIABLE FOLDER): that of its nccl.h, "2.28.9"; "" if there is none.
function(_trainrun_nccl_version variable folder)
  set(version "")
  if(EXISTS "${folder}/nccl.h")
    file(STRINGS "${folder}/nccl.h" version REGEX "^#define NCCL_(MAJOR|MINOR|PATCH) ")
    string(REGEX REPLACE "[^0-9;]" "" version "${version}")
    string(REPLACE ";" "." version "${version}")
  endif()
  set(${variable} "${version}" PARENT_SCOPE)
endfunction()

# All from one place: headers of different releases do not go together.
function(_trainrun_find_cuda_headers variable)
  file(GLOB beside_libtorch "${TRAINRUN_LIBTORCH}/../nvidia/*/include")
  file(GLOB of_python "${PROJECT_SOURCE_DIR}/.deps/python/lib/python3.*/site-packages/nvidia/*/include")
  set(toolkit /usr/local/cuda/include /usr/include)
  foreach(place TRAINRUN_CUDA_INCLUDES beside_libtorch of_python toolkit)
    set(complete ON)
    foreach(header cuda_runtime_api.h cublas_v2.h cublasLt.h cusparse.h cusolverDn.h nccl.h)
      set(found OFF)
      foreach(folder IN LISTS ${place})
        _trainrun_nccl_version(nccl_here "${folder}")
        if(EXISTS "${folder}/${header}" AND (NOT header STREQUAL "nccl.h" OR nccl_here STREQUAL nccl_version))
          set(found ON)
        endif()
      endforeach()
      if(NOT found)
        set(complete OFF)
      endif()
    endforeach()
    if(complete)
      set(${variable} "${${place}}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  set(${variable} "" PARENT_SCOPE)
endfunction()

_trainrun_find_cuda_headers(cuda_includes)
set(cuda_libraries "${TRAINRUN_LIBTORCH}/lib/libtorch_cuda.so" "${TRAINRUN_LIBTORCH}/lib/libc10_cuda.so")
if(NOT cuda_includes)
  message(STATUS "the CUDA part is left out: no headers of CUDA 13 and NCCL ${nccl_version}, which LibTorch ${TRAINRUN_LIBTORCH_VERSION} "
    "was built with; tools/setup fetches them where there is a GPU, and tools/setup --tests everywhere for the default LibTorch")
elseif(NOT EXISTS "${TRAINRUN_LIBTORCH}/lib/libtorch_cuda.so")
  message(STATUS "the CUDA part is left out: ${TRAINRUN_LIBTORCH} is a LibTorch for the CPU")
else()
  trainrun_sources(cuda_sources runner/device/cuda)
  add_library(trainrun_cuda SHARED ${cuda_sources})
  set_source_files_properties(${cuda_sources} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
  set_target_properties(trainrun_cuda PROPERTIES DEFINE_SYMBOL "")
  target_compile_definitions(trainrun_cuda PRIVATE USE_C10D_NCCL)
  target_include_directories(trainrun_cuda SYSTEM PRIVATE ${cuda_includes})
  # libtorch_cuda's own needs (cuBLAS, cuDNN, NCCL, …) are found by its RPATH when it is opened, not when this is linked.
  target_link_libraries(trainrun_cuda PRIVATE trainrun_options ${cuda_libraries})
  target_link_options(trainrun_cuda PRIVATE -Wl,--no-undefined)
endif()
