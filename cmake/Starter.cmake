# trainrun-starter: what the files of `trainrun bundle` begin with (tools/starter). It is linked statically, and lies beside
# the libraries, where the program finds it.
find_library(TRAINRUN_STATIC_ZSTD NAMES libzstd.a REQUIRED)
find_library(TRAINRUN_STATIC_CRYPTO NAMES libcrypto.a REQUIRED)

trainrun_sources(starter_sources tools/starter)
add_executable(trainrun-starter ${starter_sources})
set_target_properties(trainrun-starter PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_LIBRARY_OUTPUT_DIRECTORY}")
target_include_directories(trainrun-starter PRIVATE "${PROJECT_SOURCE_DIR}")
target_compile_options(trainrun-starter PRIVATE -Wall -Wextra -Os $<$<BOOL:${TRAINRUN_WARNINGS_AS_ERRORS}>:-Werror>)
target_link_libraries(trainrun-starter PRIVATE nlohmann_json::nlohmann_json "${TRAINRUN_STATIC_ZSTD}" "${TRAINRUN_STATIC_CRYPTO}")
target_link_options(trainrun-starter PRIVATE -static -Wl,--gc-sections)
