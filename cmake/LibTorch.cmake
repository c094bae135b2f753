# The imported target trainrun::libtorch: LibTorch as it lies in the PyPI wheel `torch`, CPU side.
#
# The wheel's own find_package(Torch) asks for a CUDA toolkit; a program that trains on the CPU needs only include/,
# lib/libtorch_cpu.so, lib/libc10.so and the wheel's OpenMP runtime. TRAINRUN_LIBTORCH names the folder that holds
# include/ and lib/: what tools/setup unpacks, or `site-packages/torch` of a Python.
#
# TRAINRUN_LIBTORCH_RELEASES lists the releases that will do, "2.11.0;2.15.0": 2.15.1 will do where 2.15.0 does, since a
# patch release has the same headers and symbols. TRAINRUN_LIBTORCH_VERSION becomes the version that was found, and
# TRAINRUN_LIBTORCH_RELEASE that of the list which it goes with.
#
# Included by the project and, installed, by trainrun's own CMake package, which lists the one that the program was built with.

if(NOT EXISTS "${TRAINRUN_LIBTORCH}/include/torch/headeronly/version.h")
  message(FATAL_ERROR
    "No LibTorch in TRAINRUN_LIBTORCH=${TRAINRUN_LIBTORCH} (include/torch/headeronly/version.h is not there).\n"
    "Run tools/setup, which fetches it, or say -DTRAINRUN_LIBTORCH=<folder with include/ and lib/>.")
endif()

file(STRINGS "${TRAINRUN_LIBTORCH}/include/torch/headeronly/version.h" _libtorch_version
  REGEX "#define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
string(REGEX REPLACE "[^0-9;]" "" _libtorch_version "${_libtorch_version}")
string(REPLACE ";" "." TRAINRUN_LIBTORCH_VERSION "${_libtorch_version}")
set(_libtorch_series "${TRAINRUN_LIBTORCH_RELEASES}")
list(TRANSFORM _libtorch_series REPLACE "\\.[0-9]+$" "")  # 2.11.0 is one of 2.11
string(REGEX REPLACE "\\.[0-9]+$" "" _libtorch_own_series "${TRAINRUN_LIBTORCH_VERSION}")
list(FIND _libtorch_series "${_libtorch_own_series}" _libtorch_found)  # IN_LIST wants a policy that a plugin's project may not set
if(_libtorch_found EQUAL -1)
  list(JOIN _libtorch_series " or " _libtorch_series)
  message(FATAL_ERROR "TRAINRUN_LIBTORCH=${TRAINRUN_LIBTORCH} holds LibTorch ${TRAINRUN_LIBTORCH_VERSION}, and this trainrun needs "
    "LibTorch ${_libtorch_series}. In a checkout, tools/setup fetches one; TRAINRUN_TORCH says which.")
endif()
list(GET TRAINRUN_LIBTORCH_RELEASES ${_libtorch_found} TRAINRUN_LIBTORCH_RELEASE)

function(_trainrun_libtorch_library target pattern)
  file(GLOB path "${TRAINRUN_LIBTORCH}/lib/${pattern}")
  list(LENGTH path count)
  if(NOT count EQUAL 1)
    message(FATAL_ERROR "expected one file ${TRAINRUN_LIBTORCH}/lib/${pattern}, found: '${path}'")
  endif()
  add_library(${target} SHARED IMPORTED GLOBAL)
  set_target_properties(${target} PROPERTIES IMPORTED_LOCATION "${path}")
endfunction()

if(NOT TARGET trainrun::libtorch)
  _trainrun_libtorch_library(trainrun::c10 libc10.so)
  _trainrun_libtorch_library(trainrun::torch_cpu libtorch_cpu.so)
  # Never a second OpenMP runtime: code compiled with -fopenmp links this one, which libtorch_cpu itself uses.
  _trainrun_libtorch_library(trainrun::gomp "libgomp*.so*")

  add_library(trainrun::libtorch INTERFACE IMPORTED GLOBAL)
  target_include_directories(trainrun::libtorch SYSTEM INTERFACE
    "${TRAINRUN_LIBTORCH}/include" "${TRAINRUN_LIBTORCH}/include/torch/csrc/api/include")
  target_compile_definitions(trainrun::libtorch INTERFACE USE_DISTRIBUTED USE_C10D_GLOO USE_KINETO)
  target_compile_features(trainrun::libtorch INTERFACE cxx_std_20)
  target_link_libraries(trainrun::libtorch INTERFACE trainrun::torch_cpu trainrun::c10 trainrun::gomp)
  # libtorch_cpu's own needs (libcudart, libcupti) are found by its RPATH when the program starts, not when it links.
  target_link_options(trainrun::libtorch INTERFACE -Wl,--allow-shlib-undefined)
  # at::parallel_for, a template, is serial in our code unless OpenMP is on where it is compiled. clang's -fopenmp
  # would bring its own runtime along, so a clang build (tests, analysis) stays serial there.
  target_compile_options(trainrun::libtorch INTERFACE "$<$<CXX_COMPILER_ID:GNU>:-fopenmp>")
endif()
