# libtrainrun_arrow.so: what the program opens where a recipe names a Parquet or Arrow file (registry/data/tables/arrow). It is
# built wherever Arrow is, as PyPI's pyarrow has it: in .deps/arrow, where tools/setup --arrow puts it, or among the tests'
# Python packages, so in CI. Nothing else links it, nor Arrow.

set(TRAINRUN_ARROW "" CACHE PATH "Arrow: the folder pyarrow of a Python; empty: look for it")

file(STRINGS "${PROJECT_SOURCE_DIR}/registry/data/tables/arrow_library.h" arrow_version REGEX "kArrowVersion = ")
string(REGEX REPLACE ".*\"([0-9.]+)\".*" "\\1" arrow_version "${arrow_version}")

# _trainrun_find_arrow(VAR): the folder with the headers and libraries of that version, or nothing.
function(_trainrun_find_arrow variable)
  file(GLOB of_python "${PROJECT_SOURCE_DIR}/.deps/python/lib/python3.*/site-packages/pyarrow")
  foreach(folder "${TRAINRUN_ARROW}" "${PROJECT_SOURCE_DIR}/.deps/arrow/pyarrow" ${of_python})
    set(config "${folder}/include/arrow/util/config.h")
    if(EXISTS "${config}")
      file(STRINGS "${config}" found REGEX "define ARROW_VERSION_STRING ")
      if(found MATCHES "\"${arrow_version}\"")
        set(${variable} "${folder}" PARENT_SCOPE)
        return()
      endif()
    endif()
  endforeach()
  set(${variable} "" PARENT_SCOPE)
endfunction()

_trainrun_find_arrow(arrow_folder)
file(GLOB arrow_libraries "${arrow_folder}/libarrow.so.*" "${arrow_folder}/libparquet.so.*")
list(LENGTH arrow_libraries count)
if(NOT arrow_folder OR NOT count EQUAL 2)
  message(STATUS "the part that reads Parquet is left out: no Arrow ${arrow_version}; tools/setup --arrow fetches it")
else()
  trainrun_sources(arrow_sources registry/data/tables/arrow)
  add_library(trainrun_arrow SHARED ${arrow_sources})
  set_source_files_properties(${arrow_sources} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
  set_target_properties(trainrun_arrow PROPERTIES DEFINE_SYMBOL "")
  target_include_directories(trainrun_arrow SYSTEM PRIVATE "${arrow_folder}/include")
  target_link_libraries(trainrun_arrow PRIVATE trainrun_registry ${arrow_libraries})
  if(NOT TRAINRUN_SANITIZERS)  # whose functions are the program's alone
    target_link_options(trainrun_arrow PRIVATE -Wl,--no-undefined)
  endif()
endif()
