# What makes a build fast on a small machine; nothing here changes what is built.

# Memory, not cores, is what a LibTorch translation unit runs out of (1.3 to 2.1 GB with g++).
cmake_host_system_information(RESULT _cores QUERY NUMBER_OF_LOGICAL_CORES)
cmake_host_system_information(RESULT _memory_mb QUERY TOTAL_PHYSICAL_MEMORY)
math(EXPR _compile_jobs "${_memory_mb} / 2500")
if(_compile_jobs GREATER _cores)
  set(_compile_jobs ${_cores})
elseif(_compile_jobs LESS 1)
  set(_compile_jobs 1)
endif()
set_property(GLOBAL PROPERTY JOB_POOLS compile=${_compile_jobs} link=2)
set(CMAKE_JOB_POOL_COMPILE compile)
set(CMAKE_JOB_POOL_LINK link)

# ccache, where it is installed. Paths count relative to the checkout, so that a fresh clone finds what another one on the
# machine compiled. A precompiled header differs from clone to clone although what it says does not; ccache is told by a
# file beside it (trainrun_precompiled_header_checksum) what it was made from.
find_program(TRAINRUN_CCACHE ccache)
if(TRAINRUN_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER env
    CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
    CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 CCACHE_PCH_EXTSUM=1 ${TRAINRUN_CCACHE})
  if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
    # CMake would also name the header that the precompiled one was made from, by a path that ccache does not translate.
    set(CMAKE_CXX_COMPILE_OPTIONS_USE_PCH -Xclang -include-pch -Xclang <PCH_FILE>)
  endif()
endif()

# trainrun_precompiled_header_checksum(TARGET HEADER): writes what identifies the target's precompiled header, made from
# HEADER, to the place where ccache looks for it. Compiler and flags are known to ccache without it.
function(trainrun_precompiled_header_checksum target header)
  find_path(TRAINRUN_NLOHMANN_INCLUDE nlohmann/json.hpp REQUIRED)
  set(identity "")
  foreach(file "${PROJECT_SOURCE_DIR}/${header}" "${TRAINRUN_LIBTORCH}/include/torch/headeronly/version.h"
      "${TRAINRUN_NLOHMANN_INCLUDE}/nlohmann/json.hpp" "${TRAINRUN_NLOHMANN_INCLUDE}/nlohmann/detail/abi_macros.hpp")
    if(EXISTS "${file}")
      file(SHA256 "${file}" digest)
      string(APPEND identity "${digest}\n")
    endif()
  endforeach()
  foreach(suffix gch pch)
    file(WRITE "${PROJECT_BINARY_DIR}/CMakeFiles/${target}.dir/cmake_pch.hxx.${suffix}.sum" "${identity}")
  endforeach()
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/${header}")
endfunction()

# Linking against the 450 MB of libtorch_cpu.so: lld does it in a third of the time.
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  find_program(TRAINRUN_LLD NAMES ld.lld-14 ld.lld)
  if(TRAINRUN_LLD)
    add_link_options(-fuse-ld=${TRAINRUN_LLD})
  endif()
endif()

# g++ reads a precompiled header and instantiates what waits in it in the time that the headers in it take. That pays
# where sources are many, not for the few units of a unity build.
set(TRAINRUN_PRECOMPILED_HEADER ON)
if(TRAINRUN_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  set(TRAINRUN_PRECOMPILED_HEADER OFF)
endif()

# trainrun_precompiled_header(TARGET): the common precompiled header, for the sources that gain by it. g++ instantiates
# all that waits in it anew in each file, 4 s of work, so there only those get it that include torch/nn, directly or not.
function(trainrun_precompiled_header target)
  if(NOT TRAINRUN_PRECOMPILED_HEADER)
    return()
  endif()
  target_precompile_headers(${target} REUSE_FROM trainrun_pch)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    _trainrun_includes_torch_nn("${source}" heavy)
    if(NOT heavy)
      set_source_files_properties("${source}" PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
    endif()
  endforeach()
endfunction()

# Folders whose code describes, reads, checks and prints, or hands tensors to LibTorch, which computes.
set(TRAINRUN_COMPUTES_NOTHING
  registry/components/initializers registry/layers registry/components/losses registry/components/schedulers
  runner/foresight runner/interop runner/loggers runner/recipe runner/report tools)

# trainrun_unity(TARGET): where TRAINRUN_UNITY is on, the sources of a folder are compiled as one, 40 at a time at most:
# most of the time goes into headers, which are then read once. Folders with few sources share a unit, those that compute
# nothing another one. A source keeps its unit when others come and go nearby. Units name their sources relative to the
# project, so that ccache finds them in every clone (CMake's own unity builds write absolute paths). Sources with options
# of their own stay alone, as do those with SKIP_UNITY_BUILD_INCLUSION, and those whose path matches TRAINRUN_ALONE: give
# it the folder you work in (-DTRAINRUN_ALONE=registry/data/), so that a change of a source compiles that source alone.
set(TRAINRUN_ALONE "" CACHE STRING "Sources that a unity build compiles one by one: a regular expression")
function(trainrun_unity target)
  if(NOT TRAINRUN_UNITY)
    return()
  endif()
  set(most 40)  # sources in a unit
  set(few 11)   # fewer in a folder share a unit with those of others
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    get_source_file_property(options "${source}" COMPILE_OPTIONS)
    get_source_file_property(alone "${source}" SKIP_UNITY_BUILD_INCLUSION)
    if(TRAINRUN_ALONE AND source MATCHES "${TRAINRUN_ALONE}")
      continue()
    endif()
    if(options OR alone OR source MATCHES "^\\$<")  # the last: objects of another target
      continue()
    endif()
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY "${PROJECT_SOURCE_DIR}")
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY "${PROJECT_SOURCE_DIR}" OUTPUT_VARIABLE path)
    cmake_path(GET path PARENT_PATH folder)
    list(APPEND "in ${folder}" "${path}")
    list(APPEND folders "${folder}")
    set_source_files_properties("${source}" PROPERTIES HEADER_FILE_ONLY ON)
  endforeach()
  list(REMOVE_DUPLICATES folders)
  foreach(folder IN LISTS folders)
    list(LENGTH "in ${folder}" count)
    math(EXPR parts "(${count} + ${most} - 1) / ${most}")
    foreach(path IN LISTS "in ${folder}")
      cmake_path(GET path STEM name)
      string(SHA1 digest "${name}")
      string(SUBSTRING "${digest}" 0 6 digest)
      math(EXPR part "0x${digest} % ${parts}")
      string(REPLACE "/" "_" unit "${folder}_${part}")
      set(kind "")
      if(folder IN_LIST TRAINRUN_COMPUTES_NOTHING)
        set(kind "_light")
      endif()
      if(count LESS few)
        set(unit ${target}_rest${kind})
      endif()
      string(APPEND text_of_${unit} "#include \"${path}\"\n")
      list(APPEND units "${unit}")
      if(kind)
        list(APPEND light_units "${unit}")
      endif()
    endforeach()
  endforeach()
  list(REMOVE_DUPLICATES units)
  foreach(unit IN LISTS units)
    set(file "${PROJECT_BINARY_DIR}/unity/${unit}.cpp")
    file(CONFIGURE OUTPUT "${file}" CONTENT "${text_of_${unit}}" @ONLY)  # left alone where it says that already
    target_sources(${target} PRIVATE "${file}")
    if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
      set_source_files_properties("${file}" PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
    endif()
    if(unit IN_LIST light_units)
      trainrun_compile_lightly("${file}")
    endif()
  endforeach()
endfunction()

# trainrun_compile_lightly(SOURCE...): without the optimizations that take as long as all the rest and gain nothing there.
function(trainrun_compile_lightly)
  set_property(SOURCE ${ARGN} APPEND PROPERTY COMPILE_OPTIONS "$<$<CONFIG:Release>:-O1>")
endfunction()

# trainrun_target_compiles_lightly(TARGET): the same for all of a target. Not -O0: inline functions of the headers come
# from the program, for the libraries too, and what reads recipes would be ten times slower.
function(trainrun_target_compiles_lightly target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    target_compile_options(${target} PRIVATE -Wno-maybe-uninitialized)  # g++ 12 sees it in std::optional, where nothing is read
  endif()
endfunction()

function(_trainrun_includes_torch_nn file variable)
  cmake_path(ABSOLUTE_PATH file BASE_DIRECTORY "${PROJECT_SOURCE_DIR}" NORMALIZE)
  get_property(known GLOBAL PROPERTY "trainrun_includes_torch_nn ${file}")
  if("${known}" STREQUAL "")
    set(known OFF)
    set_property(GLOBAL PROPERTY "trainrun_includes_torch_nn ${file}" OFF)
    file(STRINGS "${file}" includes REGEX "^#include ")
    foreach(include IN LISTS includes)
      if(include MATCHES "<torch/(nn|torch\\.h|all\\.h|types\\.h|library\\.h)")
        set(known ON)
      elseif(include MATCHES "\"(.*)\"")
        set(nested OFF)
        if(EXISTS "${PROJECT_SOURCE_DIR}/${CMAKE_MATCH_1}")  # not one that the build makes
          _trainrun_includes_torch_nn("${CMAKE_MATCH_1}" nested)
        endif()
        if(nested)
          set(known ON)
        endif()
      endif()
    endforeach()
    set_property(GLOBAL PROPERTY "trainrun_includes_torch_nn ${file}" ${known})
  endif()
  set(${variable} ${known} PARENT_SCOPE)
endfunction()
