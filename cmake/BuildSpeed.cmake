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

# ccache, where it is installed. With g++ paths count relative to the checkout, so that a fresh clone finds what another
# one compiled; clang's precompiled header names its inputs by absolute path and is good for one place only.
find_program(TRAINRUN_CCACHE ccache)
if(TRAINRUN_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER env
    CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime)
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    list(APPEND CMAKE_CXX_COMPILER_LAUNCHER CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1)
  endif()
  list(APPEND CMAKE_CXX_COMPILER_LAUNCHER ${TRAINRUN_CCACHE})
endif()

# Linking against the 450 MB of libtorch_cpu.so: lld does it in a third of the time.
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  find_program(TRAINRUN_LLD NAMES ld.lld-14 ld.lld)
  if(TRAINRUN_LLD)
    add_link_options(-fuse-ld=${TRAINRUN_LLD})
  endif()
endif()
